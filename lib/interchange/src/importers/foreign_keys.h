#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "importers/product_of.h"
#include "smp/interchange/importers/imported.h"
#include "smp/plan/jobfile/job_source.h"
#include "smp/plan/text/diagnostics.h"
#include "smp/plan/text/yaml_tree.h"

// The table of one foreign format's keys, and a reader over it. Not thread-safe per reader.
namespace smp::importers {

using NodeKind = text::YamlNode::Kind;

enum class Form { kWhole, kNumber, kBool, kText, kList, kMap, kAny };

// kCopied: the value goes to `target` unchanged. kRead: the format's own code converts the value
// into the keys of `target`. kIgnored: no plan depends on the key. kRefused: an error with
// `meaning` as its reason, unless the value is `neutral`.
enum class Use { kCopied, kRead, kIgnored, kRefused };

struct ForeignKey {
  std::string_view key;  // "zero_optimization.stage"; "optimizer.params.*" = all below
  Form form;
  Use use;
  std::string_view target;   // keys of a job file
  std::string_view meaning;  // what it becomes, or why it is left out or cannot be had
  std::string_view neutral = {};
  std::string_view words = {};  // of a text that is a choice, with blanks between
  double min = 0;               // of a number
  double max = 1e15;
};

const std::vector<ForeignKey>& smp_v1_keys();
const std::vector<ForeignKey>& smp_v2_keys();
const std::vector<ForeignKey>& deepspeed_keys();
const std::vector<ForeignKey>& accelerate_keys();
const std::vector<ForeignKey>& huggingface_keys();
const std::vector<ForeignKey>& megatron_keys();
const std::vector<ForeignKey>& nemo_keys();
const std::vector<ForeignKey>& torchtitan_keys();
const std::vector<ForeignKey>& llama_factory_keys();
const std::vector<ForeignKey>& axolotl_keys();
const std::vector<ForeignKey>& automodel_keys();

// Keys that any config.json may hold and no plan depends on: tokens, generation, other heads.
const std::vector<std::string_view>& huggingface_words();
// Flags of Megatron and torchrun that no plan depends on.
const std::vector<std::string_view>& megatron_words();

enum class UnknownKeys { kError, kWarning };

// Reads a tree by a table. Types, ranges and unknown keys are checked once, for all keys. The
// format's own code then asks for values by name. Mistakes go to the Diagnostics, and the key
// counts as absent.
class ForeignReader {
 public:
  ForeignReader(const std::vector<ForeignKey>& table, text::Diagnostics& diagnostics, Imported& out)
      : table_(table), diagnostics_(diagnostics), out_(out) {}

  // Reads a map; `prefix` is put before its keys ("" or "mpi."). `auto_is_absent`: the word "auto"
  // stands for a value that is not given.
  void read(const text::YamlNode& map, const std::string& prefix, UnknownKeys unknown,
            bool auto_is_absent = false);

  // One value by name, as if a map had held it. Messages and origins call it `shown`, or `key` if
  // that is empty.
  void add(const std::string& key, text::Place place, const text::YamlNode& value,
           bool auto_is_absent = false, const std::string& shown = {});

  // The keys are flags, but the file has fields: texts that name --some-flag then name the field
  // that stood there (or some_flag, where none did).
  void speak_of_fields() { fields_ = true; }

  bool has(std::string_view key) const { return find(key) != nullptr; }
  const ForeignKey* row_of(std::string_view key) const;  // null for an unknown key
  bool usable(std::string_view key) const;               // not given wrongly
  bool is_null(std::string_view key) const;              // given as null
  bool is_auto(std::string_view key) const;              // given as "auto"
  void refuse_null(std::string_view key);                // an error where it is given as null
  // Keys given as "auto", with the keys of a job file that they would set.
  std::vector<std::pair<std::string, std::string_view>> autos() const;
  text::Place place(
      std::string_view key) const;  // of the key's value; of the file where it is absent
  std::optional<int64_t> whole(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  const text::YamlNode* node(std::string_view key) const;
  std::string shown(std::string_view key) const;  // as messages name it

  void error(std::string_view key, std::string message);  // at the key's place
  void error_at(text::Place at, const std::string& message) {
    diagnostics_.error(at, reworded(message));
  }
  void warn(std::string_view key, std::string message);  // with file:line:column
  void warn_of_file(std::string message);                // with the file alone
  void note(const std::string& message) { out_.notes.push_back(reworded(message)); }
  void leave_out(std::string shown) { out_.ignored.push_back(std::move(shown)); }
  // An unknown key, with the nearest known one: an error, or a warning.
  void report_unknown(const std::string& key, text::Place place, UnknownKeys unknown);

  // Sets a key of the job; `origin` is what stood in the file.
  void set(std::string path, std::string value, std::string origin);
  void set_from(std::string_view key, std::string path, std::string value);  // "key = its text"
  // Sets a key of the job that follows from `key` or from its absence: the origin is "key" or "no
  // key", which another file may override.
  void set_by(const std::string& key, std::string_view path, std::string value);
  void set_by(const std::string& key, std::string_view path, int64_t value);
  // DeepSpeed's default for an absent `key`; another file may override it.
  void assume(std::string_view key, std::string path, std::string value);
  // The value "none", which another file may override.
  void assume_none(std::string path, std::string origin);
  void copy_all();  // what the table calls kCopied

 private:
  struct Given {
    const ForeignKey* row;
    std::string key;
    text::Place place;
    text::YamlNode value;
    bool bad = false;
    std::string shown = {};
  };
  const Given* find(std::string_view key) const;
  bool is_group(std::string_view key) const;  // some row's key begins with it and a dot
  std::string reworded(const std::string& text) const;
  std::string problem_with(const ForeignKey& row, const text::YamlNode& value) const;

  const std::vector<ForeignKey>& table_;
  text::Diagnostics& diagnostics_;
  Imported& out_;
  std::vector<Given> given_;
  std::vector<std::pair<std::string, text::Place>> nulls_;
  std::vector<std::string> autos_;
  bool fields_ = false;
};

// A whole number that may be written as 5e8 or 500000000.0, as JSON files do.
std::optional<int64_t> whole_value(std::string_view text);
std::optional<double> number_value(std::string_view text);
std::optional<bool> bool_value(const text::YamlNode& node);  // true, True, false or False

// The readers of one format each. `root` is the document.
void read_huggingface(const text::YamlNode& root, text::Diagnostics& diagnostics, Imported& out);
void read_smp_v1(const text::YamlNode& root, text::Diagnostics& diagnostics,
                 const ImportContext& context, Imported& out);
void read_smp_v2(const text::YamlNode& root, text::Diagnostics& diagnostics,
                 const ImportContext& context, Imported& out);
void read_deepspeed(const text::YamlNode& root, text::Diagnostics& diagnostics,
                    const ImportContext& context, Imported& out);
void read_accelerate(const text::YamlNode& root, text::Diagnostics& diagnostics,
                     const ImportContext& context, Imported& out);
void read_sagemaker(const jobfile::JobSource& source, int number, text::Diagnostics& diagnostics,
                    const ImportContext& context, Imported& out);
void read_megatron(const jobfile::JobSource& source, int number, text::Diagnostics& diagnostics,
                   const ImportContext& context, Imported& out);
void read_llama_factory(const text::YamlNode& root, text::Diagnostics& diagnostics,
                        const ImportContext& context, Imported& out);
void read_axolotl(const text::YamlNode& root, text::Diagnostics& diagnostics,
                  const ImportContext& context, Imported& out);
void read_automodel(const text::YamlNode& root, text::Diagnostics& diagnostics,
                    const ImportContext& context, Imported& out);
void read_nemo(const jobfile::JobSource& source, int number, text::Diagnostics& diagnostics,
               const ImportContext& context, Imported& out);
void read_torchtitan(const jobfile::JobSource& source, int number, text::Diagnostics& diagnostics,
                     const ImportContext& context, Imported& out);

}  // namespace smp::importers
