#pragma once

#include <chrono>
#include <string>
#include <vector>

// Runs another program to its end and takes what it prints. For short programs whose answer is
// needed at once; ranks and agents are started by lib/launcher. Any thread.
namespace smp::system {

struct ProgramOutput {
  int code = 0;  // exit code, or 128 + signal
  std::string out, err;
};

// `arguments`: the program's path, then its arguments. Its standard input is empty. Throws
// std::runtime_error if it cannot be started, or has not ended in time: it is killed then, with the
// processes that it started in its process group.
ProgramOutput output_of(const std::vector<std::string>& arguments, std::chrono::seconds time);

// The path of a program that lies beside this one; "" if there is none that may be executed.
std::string program_beside(const std::string& name);

}  // namespace smp::system
