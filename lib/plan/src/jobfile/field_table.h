#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "smp/plan/spec/job_spec.h"
#include "smp/plan/text/yaml_tree.h"

// The one table of a job file's keys. The reader, the defaults, the JSON schema, docs/job-file.md
// and the writer are loops over it, so a key is added in one place. Immutable after start-up.
namespace smp::jobfile {

template <class T>
using Member = T& (*)(JobSpec&);

using Target = std::variant<
    Member<int64_t>, Member<std::optional<int64_t>>, Member<uint64_t>, Member<double>, Member<bool>,
    Member<std::optional<bool>>, Member<std::string>, Member<std::vector<int64_t>>,
    Member<std::vector<double>>, Member<std::vector<std::string>>, Member<std::vector<LinkPoint>>,
    Member<std::vector<OperatorSpec>>, Member<std::vector<MixtureSource>>,
    Member<std::vector<EvaluationSet>>, Member<ModelFamily>, Member<Stack>, Member<MlpKind>,
    Member<GeluKind>, Member<NormKind>, Member<NormPlacement>, Member<PositionKind>,
    Member<RopeScaling>, Member<RouterKind>, Member<BalanceOver>, Member<QkNormOver>,
    Member<DeviceKind>, Member<AttentionKind>, Member<OptimizerKind>, Member<LearningRateSchedule>,
    Member<QuantizedKind>, Member<Fp8Recipe>, Member<MasterKind>, Member<MomentKind>,
    Member<std::optional<TokenKind>>, Member<std::optional<DataFormat>>, Member<Packing>,
    Member<std::optional<Precision>>, Member<std::optional<Sharding>>,
    Member<std::optional<PipelineKind>>, Member<std::optional<Recompute>>,
    Member<std::optional<CollectivesKind>>>;

enum class Unit { kNone, kBytes, kTokens, kFlopsPerS, kBytesPerS, kSeconds };

// When a key has a meaning. Otherwise the key may not be given and is not written.
struct Condition {
  bool (*holds)(const JobSpec&) = nullptr;  // none = always
  std::string_view key = {};                // that decides it, as a path
  std::string_view words = {};              // what the key needs, as in "rope_theta needs ..."
};

struct Rule {
  bool required = false;
  std::vector<ModelFamily> required_by = {};  // families that have no default for the key
  Unit unit = Unit::kNone;
  double min = 0;
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  bool max_excluded = false;
  std::string_view computed = {};       // how the default follows from other keys, in words
  std::vector<std::string> words = {};  // of a text, or of each text of a list, that is a choice
  std::string_view example = {};        // of a list, for messages
  bool is_file_name = false;            // text that names files and folders
  Condition condition = {};
  std::vector<std::string> also = {};  // what other programs call it, to suggest the key
};

struct Field {
  std::string_view section;  // "" = top level; "training.optimizer" lies in "training"
  std::string_view key;
  Target target;
  std::string_view doc;
  Rule rule = {};
};

struct Section {
  std::string_view path;
  std::string_view doc;
};

const std::vector<Section>& job_sections();  // parents before their parts
const std::vector<Field>& job_fields();      // section by section

std::string path_of(const Field& field);  // "training.optimizer.beta1"
const Field* find_field(std::string_view path);
const Section* find_section(std::string_view path);
std::string joined_path(std::string_view section, std::string_view key);

// The kind of value of the key, for schema and docs.
enum class Shape {
  kWhole,
  kUnsigned,
  kNumber,
  kBool,
  kText,
  kChoice,
  kWholeList,
  kNumberList,
  kTextList,
  kPointList,
  kLayerList,
  kSourceList,
  kSetList
};
Shape shape_of(const Field& field);
std::vector<std::string> choices_of(const Field& field);  // of a kChoice, or of a list's items

// Whether `auto` may stand for the key: an open choice, or a default that follows from other keys.
bool takes_auto(const Field& field);

// Stores the value of `node`. Returns the problem (words that follow the key), or ""; `where` may
// then be the part of the node in question. The word `auto` restores the default.
std::string assign(const Field& field, JobSpec& spec, const text::YamlNode& node,
                   const text::YamlNode*& where);

// The value in the writer's form: YAML on one line, `auto` for an open choice; nothing for an empty
// text, which a job file cannot write.
std::optional<std::string> value_text(const Field& field, const JobSpec& spec);

}  // namespace smp::jobfile
