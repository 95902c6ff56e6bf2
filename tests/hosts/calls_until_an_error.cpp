#include <unistd.h>

#include <cstdio>
#include <exception>
#include <vector>

#include "smp/comm/job_environment.h"

// A rank that calls until a call fails, and prints what it is told then: what comm_faults.py
// breaks.
int main() {
  try {
    const auto world =
        smp::connect(smp::read_job_environment("calls_until_an_error"), [](const std::string&) {});
    std::vector<float> x(100000);
    for (bool first = true;; first = false) {
      world->all_reduce(x.data(), x.data(), 100000, smp::DType::kF32, smp::ReduceOp::kSum, "x")
          ->wait();
      if (first) puts("running");
      fflush(stdout);
      usleep(1000);
    }
  } catch (const std::exception& error) {
    puts(error.what());
    return 1;
  }
}
