#include "torchrun_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <map>
#include <optional>

#include "command_line.h"
#include "option_values.h"
#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/environment/variables.h"
#include "smp/launcher/request/usage_error.h"

namespace smp {
namespace {

struct Known {
  const char* name;
  bool takes_value;
};
constexpr std::array<Known, 30> kKnown = {{
    {"nnodes", true},
    {"nproc-per-node", true},
    {"node-rank", true},
    {"master-addr", true},
    {"master-port", true},
    {"rdzv-backend", true},
    {"rdzv-endpoint", true},
    {"rdzv-id", true},
    {"rdzv-conf", true},
    {"standalone", false},
    {"max-restarts", true},
    {"monitor-interval", true},
    {"start-method", true},
    {"role", true},
    {"module", false},
    {"no-python", false},
    {"run-path", false},
    {"log-dir", true},
    {"redirects", true},
    {"tee", true},
    {"local-ranks-filter", true},
    {"local-addr", true},
    {"logs-specs", true},
    {"numa-binding", true},
    {"event-log-handler", true},
    {"signals-to-handle", true},
    {"virtual-local-rank", false},
    {"duplicate-stdout-filters", true},
    {"duplicate-stderr-filters", true},
    {"key-file", true},  // ours: the secret that the hosts share
}};
const std::map<std::string, std::string> kShort = {
    {"-m", "module"}, {"-r", "redirects"}, {"-t", "tee"}};

// Options of torchrun that change what the ranks do, and that smp-launch does not have.
constexpr std::array kNotHere = {
    "run-path",   "virtual-local-rank",       "numa-binding",
    "logs-specs", "duplicate-stdout-filters", "duplicate-stderr-filters"};

constexpr int kDefaultPort = 29500;

class Torchrun {
 public:
  Torchrun(const std::vector<std::string>& words, const std::vector<std::string>& environment);
  std::vector<std::string> own_words() const;

 private:
  size_t read(const std::vector<std::string>& words, size_t at);
  std::string said(const char* name, const std::string& otherwise) const;
  bool has(const char* name) const { return options_.count(name) != 0; }
  std::string rendezvous() const;
  std::vector<std::string> program() const;
  void refuse() const;

  std::map<std::string, std::string> options_;
  std::vector<std::string> rest_;  // script and its arguments
};

const Known* known(const std::string& name) {
  const auto found = std::find_if(kKnown.begin(), kKnown.end(),
                                  [&](const Known& one) { return name == one.name; });
  return found == kKnown.end() ? nullptr : &*found;
}

int64_t number_of(const char* name, const std::string& text, int64_t least) {
  const std::optional<int64_t> number = whole_number(text);
  if (!number || *number < least)
    throw request::UsageError(
        fmt::format("--{} '{}': expected a whole number of at least {}", name, text, least));
  return *number;
}

int gpus_of_this_host() {
  int gpus = 0;
  std::error_code error;
  while (std::filesystem::exists(fmt::format("/dev/nvidia{}", gpus), error)) ++gpus;
  return gpus;
}

int64_t ranks_of_node(const std::string& text) {
  const int gpus = gpus_of_this_host();
  if (text == "gpu" && gpus == 0)
    throw request::UsageError("--nproc-per-node gpu: this host has no GPU");
  if (text == "gpu" || (text == "auto" && gpus > 0)) return gpus;
  if (text == "cpu" || text == "auto") return environment::available_cpus();
  return number_of("nproc-per-node", text, 1);
}

// "2" and "2:2" are 2 hosts.
int64_t fixed_hosts(const std::string& text) {
  const size_t colon = text.find(':');
  const int64_t least = number_of("nnodes", text.substr(0, colon), 1);
  if (colon != text.npos && number_of("nnodes", text.substr(colon + 1), 1) != least)
    throw request::UsageError(
        fmt::format("--nnodes {}: smp-launch has a fixed number of hosts: give one number", text));
  return least;
}

Torchrun::Torchrun(const std::vector<std::string>& words,
                   const std::vector<std::string>& environment) {
  size_t at = 0;
  while (at < words.size() && words[at].size() > 1 && words[at][0] == '-' && words[at] != "--")
    at = read(words, at);
  if (at < words.size() && words[at] == "--") ++at;
  rest_.assign(words.begin() + static_cast<std::ptrdiff_t>(at), words.end());
  if (rest_.empty()) throw request::UsageError("--torchrun-compat: no script to start");
  for (const Known& one : kKnown) {
    std::string name = fmt::format("PET_{}", one.name);
    for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    const std::optional<std::string> value = environment::value_in(environment, name);
    if (!value || has(one.name)) continue;
    if (one.takes_value || *value == "1") options_.insert_or_assign(one.name, *value);
  }
}

// One option; returns the place behind it.
size_t Torchrun::read(const std::vector<std::string>& words, size_t at) {
  const std::string& word = words[at];
  const size_t equals = word.find('=');
  std::string name = word.substr(0, equals);
  if (const auto short_name = kShort.find(name); short_name != kShort.end()) {
    name = short_name->second;
  } else {
    name.erase(0, std::min(name.size(), name.find_first_not_of('-')));
    std::replace(name.begin(), name.end(), '_', '-');
  }
  const Known* option = known(name);
  if (option == nullptr)
    throw request::UsageError(fmt::format("--torchrun-compat: '{}' is not an option of torchrun",
                                          word.substr(0, equals)));
  if (!option->takes_value) {
    options_.insert_or_assign(name, std::string(1, '1'));
    return at + 1;
  }
  if (equals != word.npos) {
    options_.insert_or_assign(name, word.substr(equals + 1));
    return at + 1;
  }
  if (at + 1 == words.size()) throw request::UsageError(fmt::format("{} needs a value", word));
  options_.insert_or_assign(name, words[at + 1]);
  return at + 2;
}

std::string Torchrun::said(const char* name, const std::string& otherwise) const {
  const auto found = options_.find(name);
  return found == options_.end() ? otherwise : found->second;
}

void Torchrun::refuse() const {
  for (const char* name : kNotHere) {
    if (has(name))
      throw request::UsageError(
          fmt::format("--torchrun-compat: smp-launch does not support --{}", name));
  }
  if (said("role", "default") != "default")
    throw request::UsageError("--torchrun-compat: smp-launch supports only the role 'default'");
  const std::string backend = said("rdzv-backend", "static");
  if (backend != "static" && backend != "c10d")
    throw request::UsageError(fmt::format(
        "--torchrun-compat: smp-launch supports only the backends static and c10d, not '{}'",
        backend));
}

std::string Torchrun::rendezvous() const {
  const std::string endpoint = said("rdzv-endpoint", "");
  if (!endpoint.empty())
    return endpoint.find(':') == endpoint.npos ? fmt::format("{}:{}", endpoint, kDefaultPort)
                                               : endpoint;
  if (!has("master-addr"))
    throw request::UsageError(
        "--torchrun-compat of several hosts needs --master-addr or --rdzv-endpoint");
  return fmt::format("{}:{}", said("master-addr", ""),
                     said("master-port", std::to_string(kDefaultPort)));
}

std::vector<std::string> Torchrun::program() const {
  std::vector<std::string> words;
  if (!has("no-python")) {
    words.emplace_back("python3");
    words.emplace_back("-u");
  }
  if (has("module")) words.emplace_back("-m");
  words.insert(words.end(), rest_.begin(), rest_.end());
  return words;
}

std::vector<std::string> Torchrun::own_words() const {
  refuse();
  const int64_t hosts = fixed_hosts(said("nnodes", "1"));
  const int64_t ranks = ranks_of_node(said("nproc-per-node", "1"));
  std::vector<std::string> words = {"-n", std::to_string(hosts * ranks)};
  const auto add = [&](const char* option, const std::string& value) {
    words.emplace_back(option);
    words.push_back(value);
  };
  if (said("max-restarts", "0") != "0") add("--max-restarts", said("max-restarts", "0"));
  if (hosts > 1) {
    if (!has("node-rank"))
      throw request::UsageError("--torchrun-compat of several hosts needs --node-rank");
    if (!has("key-file"))
      throw request::UsageError(
          "--torchrun-compat of several hosts needs --key-file FILE (or PET_KEY_FILE), a file with "
          "the same secret on all hosts (torchrun has no such check)");
    add("--nnodes", std::to_string(hosts));
    add("--node-rank", said("node-rank", ""));
    add("--rendezvous", rendezvous());
    add("--key-file", said("key-file", ""));
  }
  if (has("log-dir")) add("--run-dir", said("log-dir", ""));
  add("--show-ranks", hosts == 1 ? said("local-ranks-filter", "all") : "all");
  words.emplace_back("--");
  const std::vector<std::string> started = program();
  words.insert(words.end(), started.begin(), started.end());
  return words;
}

}  // namespace

std::vector<std::string> words_of_torchrun(const std::vector<std::string>& words,
                                           const std::vector<std::string>& environment) {
  return Torchrun(words, environment).own_words();
}

}  // namespace smp
