#include "importers/import_torchtitan_pipeline.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <vector>

#include "importers/trainer_words.h"

namespace smp::importers {
namespace {

class TorchTitanPipeline {
 public:
  TorchTitanPipeline(ForeignReader& reader, std::optional<int64_t> num_layers, int64_t stages)
      : reader_(reader), num_layers_(num_layers), stages_(stages) {}

  void read() {
    const std::string file = "parallelism.pipeline_parallel_schedule_csv";
    if (!reader_.text(file).value_or("").empty()) {
      reader_.error(file, file + ": a schedule of one's own is not imported");
    }
    const std::string key = "parallelism.pipeline_parallel_schedule";
    const std::string word = reader_.text(key).value_or("1F1B");
    const std::string_view kind = pipeline_of_word(reader_, key, word);
    if (kind.empty()) return;
    reader_.set_by(key, "parallel.pipeline", std::string(kind));
    several_ = kind == "virtual" || kind == "zb_v";
    partition(key);
  }

 private:
  // pipeline_parallel.py: _get_pipeline_metadata and _generate_llm_fqn_per_model_part.
  void partition(const std::string& schedule) {
    const std::string parts = "parallelism.module_fqns_per_model_part";
    const std::string points = "parallelism.pipeline_parallel_split_points";
    if (const text::YamlNode* list = reader_.node(parts); list != nullptr && !list->items.empty()) {
      std::vector<int64_t> layers;
      for (const text::YamlNode& part : list->items) {
        layers.push_back(std::ranges::count_if(part.items, [](const text::YamlNode& name) {
          return name.text.starts_with("layers.");
        }));
      }
      return set_chunks(parts, layers);
    }
    const auto all = num_layers_;
    if (const text::YamlNode* list = reader_.node(points);
        list != nullptr && !list->items.empty() && all) {
      std::vector<int64_t> layers;
      int64_t last = 0;
      for (const text::YamlNode& point : list->items) {
        const int64_t at = whole_value(point.text.substr(point.text.rfind('.') + 1)).value_or(0);
        layers.push_back(at - last);
        last = at;
      }
      layers.push_back(*all - last);
      return set_chunks(points, layers);
    }
    const std::string key = "parallelism.pipeline_parallel_layers_per_stage";
    if (!all) {
      if (several_) set_virtual(schedule, 2);
      return;
    }
    const int64_t first =
        reader_.whole("parallelism.pipeline_parallel_first_stage_less_layers").value_or(1);
    const int64_t last =
        reader_.whole("parallelism.pipeline_parallel_last_stage_less_layers").value_or(1);
    const int64_t counted = *all + first + last;
    const auto each = reader_.whole(key);
    const int64_t chunks = each ? (counted + *each - 1) / *each : stages_ * (several_ ? 2 : 1);
    if (chunks % stages_ != 0 || counted / chunks < std::max({first, last, int64_t{1}})) {
      reader_.error(each ? key : schedule,
                    fmt::format("{} layers, with {} for the embedding and {} for the head, are {} "
                                "chunks, which the {} stages do not share evenly",
                                *all, first, last, chunks, stages_));
      return;
    }
    std::vector<int64_t> layers;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      layers.push_back(counted / chunks + (chunk < counted % chunks ? 1 : 0) -
                       (chunk == 0 ? first : 0) - (chunk + 1 == chunks ? last : 0));
    }
    set_chunks(each ? key : schedule, layers);
  }

  void set_virtual(const std::string& key, int64_t degree) {
    reader_.set_by(key, "parallel.virtual_pipeline_degree", degree);
  }

  void set_chunks(const std::string& key, const std::vector<int64_t>& layers) {
    const auto chunks = static_cast<int64_t>(layers.size());
    const bool fits = chunks % stages_ == 0 && (chunks > stages_) == several_;
    if (!fits) {
      reader_.error(key, fmt::format("{} chunks of layers for {} stages do not fit the schedule: "
                                     "expected {}",
                                     chunks, stages_,
                                     several_ ? "two or more for each stage" : "one for each"));
      return;
    }
    if (several_) set_virtual(key, chunks / stages_);
    reader_.set_by(key, "parallel.partition", fmt::format("[{}]", fmt::join(layers, ", ")));
  }

  ForeignReader& reader_;
  const std::optional<int64_t> num_layers_;
  const int64_t stages_;
  bool several_ = false;  // chunks of a rank
};

}  // namespace

void read_torchtitan_pipeline(ForeignReader& reader, std::optional<int64_t> num_layers,
                              int64_t stages) {
  if (stages > 1) TorchTitanPipeline(reader, num_layers, stages).read();
}

}  // namespace smp::importers
