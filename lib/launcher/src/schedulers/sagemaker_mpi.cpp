#include "smp/launcher/schedulers/sagemaker_mpi.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>

#include "smp/launcher/hosts/host_list.h"
#include "smp/launcher/hosts/shell_words.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/files/text_file.h"
#include "smp/plan/text/json.h"

namespace smp::schedulers {
namespace {

constexpr const char* kEnabled = "sagemaker_mpi_enabled";
constexpr const char* kProcesses = "sagemaker_mpi_num_of_processes_per_host";
constexpr const char* kOptions = "sagemaker_mpi_custom_mpi_options";

// A hyperparameter's value is JSON within a text: "8", "true", "\"--mca a b\"". Older SDKs write
// the text itself.
text::Json value_of(const text::Json& all, const char* name) {
  const auto found = all.find(name);
  if (found == all.end()) return nullptr;
  if (!found->is_string()) return *found;
  const std::string& text = found->get_ref<const std::string&>();
  text::Json value = text::Json::parse(text, nullptr, false);
  return value.is_discarded() ? text::Json(text) : value;
}

bool is_enabled(const std::string& file, const text::Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (text == "true" || text == "1") return true;
  if (text == "false" || text == "0") return false;
  throw ConfigError(fmt::format("{}: {}: '{}' is neither true nor false", file, kEnabled, text));
}

int processes_of(const std::string& file, const text::Json& value) {
  if (value.is_null()) return 0;
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  int number = 0;
  const char* last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number);
  if (error != std::errc{} || end != last || number < 1 || number > hosts::kMostSlots)
    throw ConfigError(fmt::format("{}: {}: '{}' is not a whole number from 1 to {}", file,
                                  kProcesses, text, hosts::kMostSlots));
  return number;
}

struct MpiOption {
  const char* name;  // without its dashes
  int values;        // words behind it
};
// They are for Open MPI's own transports and reports, which the ranks do not use.
constexpr std::array<MpiOption, 9> kForMpiAlone = {{{"mca", 2},
                                                    {"gmca", 2},
                                                    {"verbose", 0},
                                                    {"v", 0},
                                                    {"display-map", 0},
                                                    {"tag-output", 0},
                                                    {"report-bindings", 0},
                                                    {"allow-run-as-root", 0},
                                                    {"oversubscribe", 0}}};
// They have another name here.
struct Renamed {
  const char *name, *ours;
};
constexpr std::array<Renamed, 8> kRenamed = {{{"bind-to", "--bind"},
                                              {"map-by", "--hosts (ranks fill host after host)"},
                                              {"np", "processes_per_host"},
                                              {"n", "processes_per_host"},
                                              {"host", "SageMaker's own hosts"},
                                              {"hostfile", "SageMaker's own hosts"},
                                              {"timeout", "--timeout"},
                                              {"output-filename", "--run-dir"}}};

class OptionReader {
 public:
  OptionReader(const std::string& file, std::vector<std::string> words, SageMakerMpi& mpi)
      : file_(file), words_(std::move(words)), mpi_(mpi) {}

  void read() {
    while (at_ < words_.size()) read_one();
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw ConfigError(fmt::format("{}: {}: {}", file_, kOptions, why));
  }

  std::string take_value(const std::string& option) {
    if (at_ == words_.size()) refuse(fmt::format("a value is missing after '{}'", option));
    return words_[at_++];
  }

  void read_one() {
    const std::string word = words_[at_++];
    if (word.size() < 2 || word.front() != '-')
      refuse(fmt::format("'{}' is not an option of mpirun", word));
    const size_t equals = word.find('=');
    const std::string option = word.substr(0, equals);  // as in --bind-to=core
    const std::string name = option.substr(std::min(option.find_first_not_of('-'), option.size()));
    if (word == "-x" || word == "--x") {
      mpi_.variables.push_back(take_value(word));
    } else if (option == "--NCCL_DEBUG") {  // SageMaker's own addition
      mpi_.variables.push_back(fmt::format(
          "NCCL_DEBUG={}", equals == word.npos ? take_value(word) : word.substr(equals + 1)));
    } else {
      drop(word, name);
    }
  }

  void drop(const std::string& word, const std::string& name) {
    for (const Renamed& one : kRenamed) {
      if (name == one.name)
        refuse(fmt::format("'{}' is for mpirun, which smp-launch does not use: use {}", word,
                           one.ours));
    }
    const auto known = std::find_if(kForMpiAlone.begin(), kForMpiAlone.end(),
                                    [&](const MpiOption& one) { return name == one.name; });
    if (known == kForMpiAlone.end() || (known->values > 0 && word.find('=') != word.npos))
      refuse(fmt::format("'{}' is for mpirun, which smp-launch does not use: leave this option out",
                         word));
    std::vector<std::string> said = {word};
    for (int i = 0; i < known->values; ++i) said.push_back(take_value(word));
    mpi_.dropped.push_back(fmt::format("{}", fmt::join(said, " ")));
  }

  const std::string& file_;
  const std::vector<std::string> words_;
  SageMakerMpi& mpi_;
  size_t at_ = 0;
};

}  // namespace

SageMakerMpi parse_sagemaker_mpi(const std::string& file, const std::string& text) {
  const text::Json all = text::Json::parse(text, nullptr, false);
  if (!all.is_object()) throw ConfigError(fmt::format("{}: expected a JSON object", file));
  SageMakerMpi mpi;
  if (!is_enabled(file, value_of(all, kEnabled))) return mpi;
  mpi.processes_per_host = processes_of(file, value_of(all, kProcesses));
  const text::Json options = value_of(all, kOptions);
  if (options.is_null()) return mpi;
  if (!options.is_string())
    throw ConfigError(fmt::format("{}: {}: expected a string", file, kOptions));
  OptionReader(
      file,
      hosts::words_of_command(fmt::format("{}: {}", file, kOptions), options.get<std::string>()),
      mpi)
      .read();
  return mpi;
}

SageMakerMpi sagemaker_mpi(const std::string& folder) {
  const std::string file = folder + "/input/config/hyperparameters.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return {};
  return parse_sagemaker_mpi(file, files::read_text_file(file, "hyperparameters"));
}

}  // namespace smp::schedulers
