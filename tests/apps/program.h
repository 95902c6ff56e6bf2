#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "scratch_folder.h"

namespace smp {

struct ProgramEnd {
  int code = 0;  // exit code, or 128 + signal
  std::string out, err;
  double seconds = 0;
};

// A program that a test runs as a user would: by its file, with arguments, from outside. Its output
// goes to files. Killed when the object goes.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments,
                   const std::vector<std::string>& extra_environment = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const;
  // Throws if it has not ended in time.
  ProgramEnd wait(std::chrono::seconds time = std::chrono::seconds(120));

 private:
  ScratchFolder folder_;
  std::chrono::steady_clock::time_point started_;
  pid_t pid_ = -1;
};

ProgramEnd run_program(const std::vector<std::string>& arguments,
                       const std::vector<std::string>& extra_environment = {});

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b);
std::vector<std::string> sorted_lines(const std::string& text);
bool contains(const std::string& text, const std::string& part);

std::string read_file(const std::string& path);

// A program that does not wait for something ends within this, however busy the machine: what it
// would wait for takes longer.
inline constexpr double kSoonS = 25;

// Waits until the file holds `lines` whole lines; throws if it takes longer than a minute.
std::vector<std::string> wait_for_lines(const std::string& path, size_t lines);

// True once none of the processes is alive (zombies count as dead); waits up to `time` for it.
bool all_gone(const std::vector<std::string>& pids,
              std::chrono::milliseconds time = std::chrono::milliseconds(20'000));

}  // namespace smp
