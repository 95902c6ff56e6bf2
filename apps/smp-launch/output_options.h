#pragma once

#include <string>

#include "smp/launcher/request/launch_request.h"

namespace CLI {
class App;
}

namespace smp {

// The options about output, from CLI11 into an OutputRequest.
class OutputOptions {
 public:
  OutputOptions(CLI::App& app, request::OutputRequest& request);
  // After the command line was parsed. Throws UsageError.
  void finish();

 private:
  CLI::App& app_;
  request::OutputRequest& request_;
  std::string logs_, log_size_, log_keep_;
};

}  // namespace smp
