#include "importers/megatron_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "importers/smp_dictionary.h"
#include "smp/plan/text/suggest.h"

namespace smp::importers {
namespace {

// Python's int and float take 220_000_000.
std::string without_underscores(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      return at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] == '_' && i > 0 && digit(i - 1) && digit(i + 1)) continue;
    out += text[i];
  }
  return number_value(out) ? out : text;
}

text::YamlNode scalar(const shell::ShellWord& word) {
  text::YamlNode node;
  node.kind = text::YamlNode::Kind::kScalar;
  node.place = word.place;
  node.text = without_underscores(word.text);
  return node;
}

const ForeignKey* row_of(std::string_view flag) {
  for (const ForeignKey& row : megatron_keys()) {
    if (row.key == flag) return &row;
  }
  return nullptr;
}

// How many words behind a flag belong to it, if this is known.
size_t values_of(const std::string& flag, const ForeignKey* row, size_t given) {
  if (row != nullptr && row->form == Form::kBool) return 0;
  if (row != nullptr && row->form == Form::kList) return given;
  constexpr std::array<std::string_view, 4> kSwitches = {"no-", "use-", "mock-", "async-"};
  const bool is_switch =
      row == nullptr &&
      std::ranges::any_of(kSwitches, [&](std::string_view head) { return flag.starts_with(head); });
  return is_switch ? 0 : std::min<size_t>(given, 1);
}

// torchrun's and deepspeed's flags by one name.
std::string one_name(std::string flag) {
  if (flag == "nproc_per_node" || flag == "num_gpus") return "nproc-per-node";
  return flag == "num_nodes" ? "nnodes" : flag;
}

// Flags of the data, which a job file may name too: an open value in a script is only a warning.
bool names_data(std::string_view flag) {
  constexpr std::array<std::string_view, 6> kOfData = {
      "data-path", "train-data-path", "valid-data-path", "split", "eval-interval", "eval-iters"};
  return std::ranges::count(kOfData, flag) > 0;
}

// Of the tokenizer, which counts where it is known and no --vocab-size is given.
bool names_tokenizer(std::string_view flag) {
  return flag == "tokenizer-type" || flag == "tokenizer-model" || flag == "vocab-file";
}

class FlagScan {
 public:
  FlagScan(const ImportContext& context, ForeignReader& reader, text::Diagnostics& diagnostics,
           Imported& out)
      : context_(context), reader_(reader), diagnostics_(diagnostics), out_(out) {}

  void scan(const std::vector<shell::ShellWord>& words) {
    for (size_t i = 0; i < words.size(); ++i) {
      if (!words[i].text.starts_with("--") || words[i].text.size() < 3) {
        check_stray(words[i]);
        continue;
      }
      const shell::ShellWord& word = words[i];
      std::string flag = word.text.substr(2);
      std::vector<shell::ShellWord> values;
      const size_t equals = flag.find('=');
      if (flag.substr(0, equals).find_first_of(" \t\n") != std::string::npos) {
        diagnostics_.error(word.place,
                           "quotes join several flags into one word: remove the quotes");
        continue;
      }
      if (equals != std::string::npos) {
        shell::ShellWord value = word;
        value.text = flag.substr(equals + 1);
        value.place.column += static_cast<int>(equals) + 3;
        values.push_back(value);
        flag.resize(equals);
      }
      while (i + 1 < words.size() && !words[i + 1].text.starts_with("--")) {
        values.push_back(words[++i]);
      }
      flag = one_name(flag);
      const ForeignKey* row = row_of(flag);
      const size_t used = values_of(flag, row, values.size());
      for (size_t rest = used; rest < values.size(); ++rest) check_stray(values[rest]);
      if (word.only_if) {
        if (row != nullptr && names_data(flag)) {
          leave_open(flag, word.place, word.only_if->what);
        } else if (row != nullptr && row->use != Use::kIgnored && !names_tokenizer(flag)) {
          refuse_choice(flag, *word.only_if, true);
        }
      } else if (row == nullptr) {
        unknown(flag, word.place);
      } else {
        take(*row, flag, word.place, values, used);
      }
    }
  }

 private:
  // A word of which nothing is known may be flags.
  void check_stray(const shell::ShellWord& word) {
    if (!word.alone) return;
    const shell::ShellReason& reason = *word.unknown;
    if (reason.choice) {
      diagnostics_.error(
          reason.place,
          fmt::format("the flags depend on {}: set the value above, or keep one branch",
                      reason.what));
    } else if (!reason.unset) {
      diagnostics_.error(
          word.place,
          fmt::format("this word may hold flags, but its value is {}: write the flags instead",
                      reason.what));
    } else {
      out_.warnings.push_back(
          fmt::format("{}:{}:{}: flags that this word may hold are not read; its value is {}",
                      out_.file, word.place.line, word.place.column, reason.what));
    }
  }

  void refuse_choice(const std::string& flag, const shell::ShellReason& reason, bool whether) {
    const std::string message = fmt::format(
        "{} --{}{} depends on {}: set the value above, or keep one branch",
        whether ? "whether" : "the value of", flag, whether ? " is given" : "", reason.what);
    if (std::ranges::count(refused_, message) > 0) return;
    refused_.push_back(message);
    diagnostics_.error(reason.place, message);
  }

  void leave_open(const std::string& flag, text::Place place, std::string_view what) {
    out_.warnings.push_back(
        fmt::format("{}:{}:{}: --{} depends on {}: set the data in the job file, in training.data "
                    "or training.evaluation",
                    out_.file, place.line, place.column, flag, what));
  }

  void take(const ForeignKey& row, const std::string& flag, text::Place place,
            const std::vector<shell::ShellWord>& values, size_t used) {
    text::YamlNode node;
    if (row.form == Form::kBool) {
      node = scalar({.text = "true", .place = place});
    } else if (values.empty()) {
      diagnostics_.error(place, fmt::format("--{} needs a value", flag));
      return;
    } else if (row.form == Form::kList) {
      node.kind = text::YamlNode::Kind::kList;
      node.place = place;
      for (const shell::ShellWord& value : values) node.items.push_back(scalar(value));
    } else {
      node = scalar(values.front());
    }
    for (size_t i = 0; row.use != Use::kIgnored && i < used; ++i) {
      const shell::ShellWord& value = values[i];
      const bool doubtful = value.only_if || value.unknown;
      const bool hosts = flag == "nnodes", processes = flag == "nproc-per-node";
      if (doubtful && ((hosts && context_.hosts) || (processes && context_.processes_per_host))) {
        return;  // the call says it
      }
      if (flag == "deepspeed_config") continue;  // only a warning names it
      if (doubtful && names_tokenizer(flag)) {
        reader_.leave_out("--" + flag);
        return;
      }
      if (doubtful && names_data(flag)) {
        leave_open(flag, value.place, (value.only_if ? *value.only_if : *value.unknown).what);
        return;
      }
      if (value.only_if || (value.unknown && value.unknown->choice)) {
        refuse_choice(flag, value.only_if ? *value.only_if : *value.unknown, false);
        return;
      }
      if (!value.unknown) continue;
      diagnostics_.error(value.place,
                         fmt::format("the value of --{} is {}: {}", flag, value.unknown->what,
                                     hosts       ? "give --hosts N"
                                     : processes ? "give --processes-per-host N"
                                                 : "write the value instead"));
      return;
    }
    if (reader_.has(flag)) {
      if (row.form != Form::kBool && reader_.text(flag) != node.text) {
        diagnostics_.error(place, fmt::format("--{} is given twice, as {} and as {}", flag,
                                              reader_.text(flag).value_or(""), node.text));
      }
      return;
    }
    reader_.add(flag, place, node);
  }

  void unknown(const std::string& flag, text::Place place) {
    if (std::ranges::count(megatron_words(), flag) > 0) {
      out_.ignored.push_back("--" + flag);
      return;
    }
    std::vector<std::string> names;
    for (const ForeignKey& row : megatron_keys()) names.emplace_back(row.key);
    // A typing mistake is at most two letters; many flags of Megatron differ from these by more.
    const auto near = text::nearest(flag, names);
    if (near && text::edit_distance(flag, *near) <= 2) {
      diagnostics_.error(place,
                         fmt::format("unknown flag '--{}', did you mean '--{}'?", flag, *near));
      return;
    }
    out_.warnings.push_back(
        fmt::format("{}:{}:{}: unknown flag '--{}'", out_.file, place.line, place.column, flag));
  }

  const ImportContext& context_;
  ForeignReader& reader_;
  text::Diagnostics& diagnostics_;
  Imported& out_;
  std::vector<std::string> refused_;
};

}  // namespace

void read_megatron_flags(const std::vector<shell::ShellWord>& words, const ImportContext& context,
                         ForeignReader& reader, text::Diagnostics& diagnostics, Imported& out) {
  FlagScan(context, reader, diagnostics, out).scan(words);
}

}  // namespace smp::importers
