// SPDX-License-Identifier: Apache-2.0
// One flow of control with a stack of its own, and the switch between two of them.
#ifndef SIMT_CONTEXT_H
#define SIMT_CONTEXT_H

#include <cstddef>

#if !defined(__x86_64__)
#error "no switch between two flows for this machine"
#endif

namespace simt {

class Context {
public:
	// The flow that is running now.
	Context() = default;
	// A flow that begins in @entry, which never returns, on @stack (bytes, 16-byte aligned).
	Context(void *stack, size_t size, void (*entry)());

	// Leave @from, go on with @to. Makes no system call.
	static void change(Context &from, Context &to);

private:
	void *stack_pointer_ = nullptr;
};

} // namespace simt

#endif // SIMT_CONTEXT_H
