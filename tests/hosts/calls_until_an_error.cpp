#include <unistd.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "comm/on_paths.h"
#include "smp/comm/jobs/job_environment.h"

// A rank that makes the call that it is told until one fails, and prints what it is told then: what
// comm_faults.py breaks.
int main(int argc, char** argv) {
  const std::string call = argc > 1 ? argv[1] : "all_reduce";
  try {
    const auto world = smp::jobs::connect(smp::jobs::read_job_environment("calls_until_an_error"),
                                          [](const std::string&) {});
    std::vector<float> in(size_t(smp::testing::kCount * world->size())), out(in.size());
    for (bool first = true;; first = false) {
      smp::testing::make(call, *world, in.data(), out.data());
      if (first) puts("running");
      fflush(stdout);
      usleep(1000);
    }
  } catch (const std::exception& error) {
    puts(error.what());
    return 1;
  }
}
