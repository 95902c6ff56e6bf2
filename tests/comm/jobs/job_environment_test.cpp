#include "smp/comm/jobs/job_environment.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "comm/processes.h"

using namespace smp;
using namespace smp::jobs;
using namespace smp::testing;

namespace {

// What the only rank of a job on one host hears when this is set; "good" when nothing is wrong.
std::string read_with(const char* name, const char* value) {
  Child child([&] {
    for (const char* zero : {"RANK", "LOCAL_RANK"}) setenv(zero, "0", 1);
    for (const char* one : {"WORLD_SIZE", "LOCAL_WORLD_SIZE", "SMP_JOB_ID", "SMP_JOB_KEY"})
      setenv(one, "1", 1);
    unsetenv("GROUP_WORLD_SIZE");
    setenv(name, value, 1);
    read_job_environment("this test");
    return std::string("good");
  });
  return child.join().said;
}

}  // namespace

TEST_CASE("a time-out that is none is refused, with what is allowed") {
  for (const char* good : {"0.001", "0.5", "300", "31536000"})
    CHECK(read_with("SMP_COMM_TIMEOUT_S", good) == "good");
  for (const char* bad : {"0", "-1", "nan", "inf", "0.0009", "31536001", "1e300"})
    CHECK(read_with("SMP_COMM_TIMEOUT_S", bad) == std::string("exception: SMP_COMM_TIMEOUT_S=") +
                                                      bad + ": expected 0.001 to 31536000 seconds");
  CHECK(read_with("SMP_COMM_TIMEOUT_S", "5m") ==
        "exception: SMP_COMM_TIMEOUT_S='5m' is not a number");
}

TEST_CASE("what is wrong with the network's settings is said on one host too") {
  CHECK(read_with("SMP_FABRIC_PROVIDER", "shm") == "good");
  CHECK(read_with("SMP_FABRIC_PROVIDER", "verb") ==
        "exception: SMP_FABRIC_PROVIDER=verb: expected one of efa, verbs;ofi_rxm, tcp, net, "
        "tcp;ofi_rxm, shm");
  CHECK(read_with("SMP_FABRIC_SUBNET", "10.0.0.0/16,fd00::/8") == "good");
  CHECK(
      read_with("SMP_FABRIC_SUBNET", "10.0.0.0/16abc") ==
      "exception: SMP_FABRIC_SUBNET: '10.0.0.0/16abc' is not a network: expected ADDRESS/BITS, as "
      "in 10.0.0.0/16, or several separated by commas");
  CHECK(read_with("SMP_FABRIC_PROTOCOL", "rma") ==
        "exception: SMP_FABRIC_PROTOCOL=rma: expected tagged or write");
  CHECK(read_with("SMP_FABRIC_EXCHANGE", "star") ==
        "exception: SMP_FABRIC_EXCHANGE=star: expected mesh, ring or doubling");
  CHECK(read_with("SMP_FABRIC_COST", "1").starts_with("exception: SMP_FABRIC_COST: '1': expected"));
}
