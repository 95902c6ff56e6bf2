#pragma once

#include <string>
#include <vector>

#include "smp/launcher/request/prepared_job.h"

namespace smp::request {

// A job as a scheduler has to know it: so many equal hosts, with so many ranks each.
struct JobShape {
  std::string name;
  int hosts = 1;
  int ranks_per_host = 1;
  int gpus_per_host = 0;
};

// Throws ConfigError for a job whose hosts are not equal.
JobShape shape_of(const PreparedJob& job);

// An option as it is typed. Values that look secret are left out: the variable is passed on by its
// name.
std::vector<std::string> words_of(const SaidOption& option);

// The words of the smp-launch in a written job, behind its name and the options that find its
// hosts: the user's options, without those about hosts, ranks and dry runs; then the plan or the
// program.
std::vector<std::string> passed_on_words(const PreparedJob& job);

}  // namespace smp::request
