#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace smp {

// What the command line asks for, to be run once it is read; the exit code.
using BenchRun = std::function<int()>;

void add_collectives_command(CLI::App& app, BenchRun& run);
void add_exchanges_command(CLI::App& app, BenchRun& run);
void add_data_command(CLI::App& app, BenchRun& run);
void add_host_command(CLI::App& app, BenchRun& run);

}  // namespace smp
