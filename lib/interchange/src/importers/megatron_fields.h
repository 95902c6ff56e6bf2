#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "importers/foreign_keys.h"
#include "smp/interchange/importers/imported.h"

// The fields of Megatron Core's configuration classes (TransformerConfig, OptimizerConfig,
// DistributedDataParallelConfig, ...) and of its parsed arguments, as YAML files, logs and recipes
// give them. Each becomes the flag of a Megatron-LM command line with the same meaning. Not
// thread-safe per object.
namespace smp::importers {

// kValue: the flag takes the field's value. kTrue, kFalse: a flag without a value, given if the
// field is true or false. kOwn: MegatronFields converts it, alone or with others. kIgnored: no plan
// depends on it. kRefused: an error unless the value is one of `neutral`; kWarned: a warning.
enum class FieldUse { kValue, kTrue, kFalse, kOwn, kIgnored, kRefused, kWarned };

struct MegatronField {
  std::string_view field;
  FieldUse use;
  std::string_view flag;          // kValue, kTrue, kFalse; a key of megatron_keys()
  std::string_view target;        // kOwn: keys of a job file
  std::string_view meaning;       // kOwn, kRefused, kWarned; of others the flag's own
  std::string_view neutral = {};  // values that need no words, with blanks between; null always is
};

// Fields whose flag is not the field's name with '-', and fields without a flag. Of the others each
// is the flag of that name.
const std::vector<MegatronField>& megatron_fields();
// Further fields that no plan depends on, beside megatron_words() with '_'.
const std::vector<std::string_view>& megatron_field_words();
// Beginnings of names of which the same is true, unless they are fields above.
const std::vector<std::string_view>& megatron_field_heads();
// The flag that a field is: a row of megatron_fields(), or one made of the name. kIgnored for the
// words; nothing if the field is not known.
std::optional<MegatronField> megatron_field(std::string_view field);

class MegatronFields {
 public:
  MegatronFields(ForeignReader& flags, Imported& out) : flags_(flags), out_(out) {
    flags_.speak_of_fields();
  }

  // A field of the file, which messages call `shown`. A later value of the same field replaces an
  // earlier one; null replaces only a recipe's. False if no field has this name.
  bool take(const std::string& field, const std::string& shown, text::Place place,
            const text::YamlNode& value, bool of_recipe = false);
  bool has(std::string_view field) const { return find(field) != nullptr; }
  const text::YamlNode* find(std::string_view field) const;  // null if absent or null
  // Gives the reader all flags.
  void finish(const ImportContext& context);

 private:
  struct Value {
    std::string field;
    std::string shown;
    text::Place place;
    text::YamlNode node;
    bool of_recipe = false;
  };
  Value* value_of(std::string_view field);
  std::optional<int64_t> whole(std::string_view field) const;
  std::optional<bool> boolean(std::string_view field) const;
  void error(const Value& value, const std::string& message);
  void warn(const Value& value, const std::string& message);
  void give(const Value& value, std::string_view flag, const text::YamlNode& node);
  void give(const Value& value, std::string_view flag, std::string text);
  void give_row(const Value& value, const MegatronField& row);
  void activation();
  void key_value_heads();
  void virtual_stages();
  void stage_ends();
  void expert_layers(const Value& value);
  void window(const Value& value);
  void blend(const Value& value);
  void ranks(const Value& value, const ImportContext& context);
  void own(const Value& value, const ImportContext& context);

  ForeignReader& flags_;
  Imported& out_;
  std::vector<Value> values_;
};

}  // namespace smp::importers
