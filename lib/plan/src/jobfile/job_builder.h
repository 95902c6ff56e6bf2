#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "jobfile/field_table.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/plan/text/diagnostics.h"
#include "smp/plan/text/yaml_tree.h"

// Builds a JobSpec from trees and overrides, later ones over earlier ones, key by key. Mistakes go
// to the Diagnostics. finish() fills the defaults that follow from other keys and checks keys
// against each other. Not thread-safe; one per reading.
namespace smp::jobfile {

class JobBuilder {
 public:
  // A plan is read where a user's framework file may be missing: it leaves the file alone.
  enum class FrameworkFile { kRead, kLeave };
  JobBuilder(text::Diagnostics& diagnostics, FrameworkFile framework_file)
      : diagnostics_(diagnostics), framework_file_(framework_file) {}

  // `node` is the map that holds name, model, cluster, training, parallel.
  void add(const text::YamlNode& node, bool complete);

  // Drops the values of "model" or "cluster" read so far.
  void forget(std::string_view section);

  // "parallel.tensor_parallel_degree=2", from a command line.
  void add_override(const std::string& text);

  // Call it only if the Diagnostics hold no error. `fallback_name` is the job's name if no key
  // gives one.
  JobSpec finish(const std::string& fallback_name);

 private:
  enum class State { kAbsent, kGiven, kBad };
  struct Entry {
    State state = State::kAbsent;
    text::Place place;
  };

  void read_section(const text::YamlNode& node, std::string_view section);
  void read_value(const Field& field, const text::YamlNode& node, const std::string& shown_name);
  void report_unknown(const std::string& section, const std::string& key, text::Place place);
  void require_all(const Section& section);
  text::Place section_place(std::string_view section) const;

  // For the checks of finish(), by path.
  bool given(std::string_view path) const;
  bool usable(std::initializer_list<std::string_view> paths) const;           // none of them is bad
  text::Place place_of(std::initializer_list<std::string_view> paths) const;  // the first one given
  void error(std::initializer_list<std::string_view> paths, std::string message);

  void resolve_attributes();
  void resolve_layer_list();
  void bad_layer_list();
  void resolve_model();
  void check_model();
  void check_conditions();
  void check_heads();
  void check_rotary();
  void check_blocks();
  void check_expert_groups();
  void check_hybrid();
  void check_size();
  void check_data();
  void check_trace();
  void resolve_training();
  void resolve_optimizer();
  void check_optimizer();
  void check_state_types();
  void resolve_fine_tuning();
  void check_fine_tuning();
  void check_batch_ramp();
  void check_rates();
  void check_precision();

  void resolve_framework();
  void agree_on_sharding();
  void check_recompute_modules();
  bool check_strategy();  // whether layers share a checkpoint
  void agree_on_recompute();
  void agree_on_pipeline();
  void check_parallel();
  void check_sequence_axes();
  void check_experts();
  void check_partition_method();
  void check_partition();
  void check_forbidden();

  text::Diagnostics& diagnostics_;
  FrameworkFile framework_file_;
  JobSpec spec_;
  bool complete_ = true;
  std::map<std::string, Entry, std::less<>> entries_;         // by path
  std::map<std::string, text::Place, std::less<>> sections_;  // where each was last opened
  std::set<std::string, std::less<>> misspelt_sections_;
  std::vector<text::Place> layer_places_;  // of the items of model.layers
};

}  // namespace smp::jobfile
