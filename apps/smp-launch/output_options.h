#pragma once

#include <string>

#include "smp/launcher/process/log_file.h"

namespace CLI {
class App;
}

namespace smp {

// What the user says about the ranks' output.
struct OutputRequest {
  std::string shown_ranks = "0";
  std::string prefix = "[{rank}] ";
  bool fold = false;
  bool rank_logs = true;
  bool host_logs = false;
  std::string log_name = "rank-{rank}.{stream}";
  process::LogLimit log_limit;

  bool asks_for_logs() const { return host_logs || log_limit.bytes > 0; }
};

// The options about output, on their way from CLI11 into an OutputRequest.
class OutputOptions {
 public:
  OutputOptions(CLI::App& app, OutputRequest& request);
  // After the command line was parsed. Throws UsageError.
  void finish();

 private:
  CLI::App& app_;
  OutputRequest& request_;
  std::string logs_, log_size_, log_keep_;
};

}  // namespace smp
