#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "host_options.h"
#include "output_options.h"
#include "smp/launcher/local/binding.h"
#include "watch_options.h"

namespace smp {

// What a dry run prints: for people, for programs, or the job as another launcher takes it.
enum class DryRun { kNo, kText, kRanks, kJson, kSh, kSbatch, kJobset, kMpijob, kTrainjob, kLws };

constexpr int kMostRanks = 65536;  // of a job

// A manifest for Kubernetes: what it names lies in a container's image.
bool is_manifest(DryRun form);

// An option as it was typed.
struct SaidOption {
  std::string name;  // "--run-dir"
  std::vector<std::string> values;
  bool is_flag = false;  // its value stands behind '='
};

// --resume's word for jobs that others start again: go on where there is a checkpoint.
inline constexpr const char* kResumeIfAny = "if-any";

// What the user typed, checked as far as that is possible without looking at any file.
struct LaunchRequest {
  std::string plan;                  // path; empty = a program
  std::vector<std::string> program;  // everything behind "--"; empty = a plan
  int ranks = 0;                     // of a program; 0 = as many as the hosts have slots
  std::string run_dir;               // empty = the default for a plan, none for a program
  std::string resume;                // "latest" or a step; empty = start anew
  OutputRequest output;
  std::string input_ranks = "none";  // that are given standard input
  std::chrono::milliseconds grace{5000};
  std::optional<std::chrono::milliseconds> timeout;
  std::optional<std::chrono::milliseconds> comm_timeout;
  std::string report_json;
  std::string status_of;  // a run folder: tell how it stands, launch nothing
  WatchRequest watch;
  HostRequest hosts;
  local::Binding binding = local::Binding::kNone;
  bool report_bindings = false;
  bool tensor_across_hosts = false;  // allowed
  DryRun dry_run = DryRun::kNo;
  std::vector<std::string> skipped;  // checks that a dry run does not ask for
  bool check = false;                // the hosts; start nothing
  std::string job_name, image;       // of a job that a dry run writes
  std::vector<SaidOption> said;      // all options
  std::optional<int> build_only;     // build this rank of the plan alone
  std::string show_samples;          // of these steps, "3-5"; start nothing
};

// Whether the pods of a manifest are made again by the cluster, as often as --max-restarts says,
// and not by the smp-launch in them: those that come by themselves, and an MPIJob's launcher where
// that goes on from the last checkpoint.
bool cluster_restarts(const LaunchRequest& request);

// A command line that cannot be understood; what() says what to type instead.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Text that the user asked for instead of a launch: --help, --version.
struct Information {
  std::string text;
};

// Throws UsageError; throws Information for --help and --version.
LaunchRequest parse_command_line(int argc, const char* const* argv);

}  // namespace smp
