// SPDX-License-Identifier: Apache-2.0
// The switch between two flows of control.
#include "context.h"

#include <cstdint>

// Callee-saved registers of the System V ABI go to the old stack, the new stack gives its own back.
asm(".text\n"
    ".type simt_change, @function\n"
    "simt_change:\n"
    "	pushq %rbp\n"
    "	pushq %rbx\n"
    "	pushq %r12\n"
    "	pushq %r13\n"
    "	pushq %r14\n"
    "	pushq %r15\n"
    "	movq %rsp, (%rdi)\n"
    "	movq %rsi, %rsp\n"
    "	popq %r15\n"
    "	popq %r14\n"
    "	popq %r13\n"
    "	popq %r12\n"
    "	popq %rbx\n"
    "	popq %rbp\n"
    "	ret\n"
    ".size simt_change, . - simt_change\n");

extern "C" void simt_change(void **save, void *load);

namespace simt {

Context::Context(void *stack, size_t size, void (*entry)())
{
	auto *top = reinterpret_cast<uintptr_t *>(static_cast<char *>(stack) + size);

	// As after a call of entry: its return address, never used, keeps the stack aligned.
	*--top = 0;
	*--top = reinterpret_cast<uintptr_t>(entry);
	for (int i = 0; i < 6; i++)
		*--top = 0;
	stack_pointer_ = top;
}

void Context::change(Context &from, Context &to)
{
	simt_change(&from.stack_pointer_, to.stack_pointer_);
}

} // namespace simt
