#pragma once

#include <string>

// The programs that a launch starts. Any thread.
namespace smp::launch {

// The running program, by /proc. Throws std::runtime_error if /proc is not mounted.
std::string own_program();

// Folder of the running program: the other programs of smp lie there too.
std::string own_folder();

// The file that a program's name stands for along PATH; empty where there is none.
std::string found_in_path(const std::string& program);

// The file that a start will execute: a name without '/' is looked up along PATH. Throws
// ConfigError where there is none.
std::string find_program(const std::string& program);

// `worker`, if it is an executable file. Throws ConfigError otherwise.
std::string find_worker(const std::string& worker);

}  // namespace smp::launch
