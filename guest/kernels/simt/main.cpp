// SPDX-License-Identifier: Apache-2.0
// vrnic-simt: kernels of many lanes that submit their own RDMA work. See --help.
#include <csignal>
#include <cstdio>
#include <cstring>

#include "host.h"

namespace kernels {

namespace {

void print_text(const std::string &text)
{
	putchar('"');
	for (char c : text) {
		if (c == '"' || c == '\\')
			putchar('\\');
		if (static_cast<unsigned char>(c) >= ' ')
			putchar(c);
	}
	putchar('"');
}

int report(const Options &options, const Machine &machine, Host *host, const Job *job, const std::string &error)
{
	bool clean = !host || host->memory().violations().empty();
	bool ok = error.empty() && clean;

	if (!error.empty())
		fprintf(stderr, "vrnic-simt: %s\n", error.c_str());
	printf("{\"kernel\":\"%s\",\"pe\":%u,\"engine\":\"%s\",\"seed\":%llu,\"ok\":%s,\"verified\":%s", options.kernel,
	       machine.pe, options.weak ? "weak" : "direct", static_cast<unsigned long long>(options.seed),
	       ok ? "true" : "false", error.empty() ? "true" : "false");
	if (job)
		printf(",\"messages\":%llu,\"bytes\":%llu,\"doorbells\":%llu,\"cpu_touches\":%llu,\"seconds\":%.6f%s",
		       static_cast<unsigned long long>(job->messages), static_cast<unsigned long long>(job->bytes),
		       static_cast<unsigned long long>(host->rings()),
		       static_cast<unsigned long long>(host->proxy().touches()),
		       static_cast<double>(job->ticks) / static_cast<double>(machine.ticks_per_second),
		       job->detail.c_str());
	printf(",\"violations\":[");
	for (size_t i = 0; host && i < host->memory().violations().size(); i++) {
		const simt::Violation &violation = host->memory().violations()[i];

		fprintf(stderr, "vrnic-simt: %s: %s\n", violation.rule.c_str(), violation.text.c_str());
		printf("%s{\"rule\":\"%s\",\"text\":", i ? "," : "", violation.rule.c_str());
		print_text(violation.text);
		putchar('}');
	}
	putchar(']');
	if (!error.empty()) {
		printf(",\"error\":");
		print_text(error);
	}
	puts("}");
	fflush(stdout);
	return ok ? 0 : 1;
}

int run(Options &options, const Kernel &kernel, Machine &machine)
{
	Host host(options, machine);
	std::string error;

	if (!machine.open(options))
		return report(options, machine, nullptr, nullptr, machine.error());
	error = kernel.defaults(options, machine.pes);
	if (!error.empty())
		return report(options, machine, nullptr, nullptr, error);

	simt::Shape shape = { options.ctas, options.warps };

	if (!host.open(kernel.heap(options, machine.pes), shape.lanes(), shape.ctas))
		return report(options, machine, nullptr, nullptr, host.error());

	Job job = { options, host.shmem(), host.memory(), host.base(), host.watcher() };
	simt::Grid grid(shape, host.memory(), options.seed, [&] {
		host.proxy().step();
		machine.idle();
		host.watcher().idle();
	});

	kernel.prepare(job);
	if (!machine.sync())
		return report(options, machine, &host, &job, machine.error());
	job.ticks = machine.clock();

	bool finished = grid.run([&] { kernel.lane(job); });

	job.ticks = machine.clock() - job.ticks;
	host.watcher().finish();
	if (!finished) {
		std::string cause = host.explain();

		return report(options, machine, &host, &job, grid.error() + (cause.empty() ? "" : "; " + cause));
	}
	// What peers sent is complete when they are here, too.
	if (!machine.sync())
		return report(options, machine, &host, &job, machine.error());
	error = kernel.verify(job);
	// A peer may still be looking at what it got from here.
	if (error.empty() && !machine.sync())
		error = machine.error();
	return report(options, machine, &host, &job, error);
}

} // namespace

} // namespace kernels

int main(int argc, char **argv)
{
	kernels::Options options;
	const kernels::Kernel *kernel;

	kernels::options_parse(argc, argv, options);
	kernel = kernels::kernel_named(options.kernel);
	if (!kernel) {
		fprintf(stderr, "vrnic-simt: no kernel is called %s (--help lists them)\n", options.kernel);
		return 2;
	}
	// A peer that is gone is an error of write(), not the end.
	signal(SIGPIPE, SIG_IGN);

	std::unique_ptr<kernels::Machine> machine =
		options.harness >= 0			   ? kernels::make_harness_machine() :
		options.device == kernels::Device::mlx5 ? kernels::make_mlx5_machine() :
							   kernels::make_device_machine();

	return kernels::run(options, *kernel, *machine);
}
