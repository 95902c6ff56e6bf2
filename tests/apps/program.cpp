#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

namespace smp {
namespace {

using Clock = std::chrono::steady_clock;

void pause_briefly() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

bool is_alive(const std::string& pid) {
  const std::string stat = read_file("/proc/" + pid + "/stat");
  const size_t name_end = stat.rfind(')');
  return name_end != stat.npos && name_end + 2 < stat.size() && stat[name_end + 2] != 'Z' &&
         stat[name_end + 2] != 'X';
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments,
                 const std::vector<std::string>& extra_environment)
    : started_(Clock::now()) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string out = folder_ / "out", err = folder_ / "err";
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("cannot fork");
  if (pid_ == 0) {
    setpgid(0, 0);
    // No test depends on how fast this host is.
    ::setenv("SMP_NO_MEASURE", "1", 0);
    for (const std::string& variable : extra_environment)
      putenv(const_cast<char*>(variable.c_str()));
    dup2(open("/dev/null", O_RDONLY), 0);
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 1);
    dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    execv(argv[0], argv.data());
    _exit(127);
  }
}

Program::~Program() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Program::signal(int number) const { kill(pid_, number); }

ProgramEnd Program::wait(std::chrono::seconds time) {
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    if (Clock::now() - started_ > time)
      throw std::runtime_error("the program hangs; so far it said:\n" + read_file(folder_ / "out") +
                               read_file(folder_ / "err"));
    pause_briefly();
  }
  pid_ = -1;
  ProgramEnd end;
  end.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  end.out = read_file(folder_ / "out");
  end.err = read_file(folder_ / "err");
  end.seconds = std::chrono::duration<double>(Clock::now() - started_).count();
  return end;
}

ProgramEnd run_program(const std::vector<std::string>& arguments,
                       const std::vector<std::string>& extra_environment) {
  return Program(arguments, extra_environment).wait();
}

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  return lines;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != text.npos;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> wait_for_lines(const std::string& path, size_t lines) {
  const auto deadline = Clock::now() + std::chrono::seconds(60);
  while (true) {
    std::istringstream text(read_file(path));
    std::vector<std::string> found;
    for (std::string line; std::getline(text, line) && !text.eof();) found.push_back(line);
    if (found.size() >= lines) return found;
    if (Clock::now() > deadline) throw std::runtime_error("no " + path + " in a minute");
    pause_briefly();
  }
}

bool all_gone(const std::vector<std::string>& pids, std::chrono::milliseconds time) {
  const auto deadline = Clock::now() + time;
  while (true) {
    bool any = false;
    for (const std::string& pid : pids) any = any || is_alive(pid);
    if (!any) return true;
    if (Clock::now() > deadline) return false;
    pause_briefly();
  }
}

}  // namespace smp
