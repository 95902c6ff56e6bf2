#include "smp/planner/report/layers_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "choice/resolve.h"
#include "cost/layer_program.h"
#include "page/html.h"
#include "smp/plan/base/errors.h"
#include "smp/plan/framework/framework_catalog.h"
#include "smp/plan/model/frozen_parts.h"
#include "smp/plan/model/operators.h"
#include "smp/plan/program/build.h"
#include "smp/plan/program/liveness.h"
#include "smp/plan/program/messages.h"
#include "smp/plan/program/work.h"
#include "smp/plan/rules/engine_rules.h"
#include "smp/plan/schedule/schedule.h"
#include "smp/plan/text/suggest.h"
#include "smp/plan/text/units.h"

namespace smp::report {
namespace {

// Layers that have one program.
struct AlikeLayers {
  std::vector<model::LayerSpec> layers;

  std::string name() const {
    const std::string& first = layers.front().name;
    if (layers.size() == 1) return first;
    const bool side_by_side =
        layers.back().index - layers.front().index + 1 == static_cast<int64_t>(layers.size());
    if (!side_by_side) {
      return fmt::format("{}, {} ... {} ({} alike)", first, layers[1].name, layers.back().name,
                         layers.size());
    }
    return fmt::format("{} to {} ({} alike)", first, layers.back().name, layers.size());
  }
};

std::vector<AlikeLayers> alike_layers(const ModelSpec& model) {
  std::vector<AlikeLayers> groups;
  for (const model::LayerSpec& layer : model::layers_of(model)) {
    auto group = std::find_if(groups.begin(), groups.end(), [&](const AlikeLayers& known) {
      return program::are_alike(model, known.layers.front(), layer);
    });
    if (group == groups.end()) group = groups.emplace(group);
    group->layers.push_back(layer);
  }
  return groups;
}

// All, or the one of that name.
std::vector<AlikeLayers> chosen_layers(const ModelSpec& model, std::string_view only) {
  std::vector<AlikeLayers> groups = alike_layers(model);
  if (only.empty()) return groups;
  std::vector<std::string> names, group_names;
  for (const AlikeLayers& group : groups) {
    group_names.push_back(group.name());
    for (const model::LayerSpec& layer : group.layers) {
      if (layer.name == only) return {{{layer}}};
      names.push_back(layer.name);
    }
  }
  const std::optional<std::string> near = text::nearest(only, names);
  throw ConfigError(fmt::format("--layer: the model has no layer '{}'{}; it has {}", only,
                                near ? fmt::format(" (did you mean '{}'?)", *near) : "",
                                fmt::join(group_names, ", ")));
}

std::string shape_text(const program::Value& value) {
  if (value.shape.empty()) return "a number";
  std::string text;
  for (const program::Dim& dim : value.shape) {
    text += fmt::format("{}{}", text.empty() ? "" : " x ", dim.size);
    if (*dim.name != '\0') text += fmt::format(" {}", dim.name);
    if (dim.parts > 1) text += fmt::format("/{}", dim.parts);
  }
  return text;
}

std::string name_text(const program::LayerProgram& program, program::ValueId id) {
  const program::Value& value = program.value(id);
  if (value.last_parameter.empty()) return value.name;
  return value.name + ".." + value.last_parameter;
}

std::string flops_text(double flops) {
  if (flops == 0) return "-";
  if (flops >= 1e12) return fmt::format("{:.2f} TFLOP", flops * 1e-12);
  if (flops >= 1e9) return fmt::format("{:.1f} GFLOP", flops * 1e-9);
  return fmt::format("{:.2f} MFLOP", flops * 1e-6);
}
std::string bytes_text(int64_t bytes) { return bytes == 0 ? "-" : text::human_bytes(bytes); }

// One operation as a line.
struct ProgramLine {
  std::string flops, moved, sent, alive;
  std::string made = {}, does = {};
};

struct ProgramSection {
  std::string name;
  std::vector<ProgramLine> lines;
  ProgramLine sum;
};

// The ranks of our engine execute the programs of build(), on CPUs and GPUs.
bool is_executed(const Plan& plan) {
  return plan.job.parallel.framework.is_engine() || model::is_list(plan.job.model);
}

// What prevents our engine from running the model in this job; empty = nothing.
std::vector<std::string> what_prevents(const Plan& plan) {
  if (!is_executed(plan)) return {};
  std::vector<std::string> reasons = rules::what_engine_cannot_build(plan);
  if (reasons.empty() && !program::has_programs(plan.job.model)) {
    reasons.emplace_back("the model has layers of another kind");
  }
  return reasons;
}

std::string sentence_of_unknown(const AlikeLayers& alike, const std::vector<std::string>& reasons) {
  return fmt::format("{}: the engine does not run this layer in this job, so it has no program:\n",
                     alike.name()) +
         fmt::format("  {}\n", fmt::join(reasons, "\n  "));
}

program::LayerProgram program_of(const Plan& plan, const model::LayerSpec& layer) {
  const choice::LayoutChoice choice = choice::choice_of(plan);
  if (is_executed(plan)) {
    return program::build(plan.job.model, layer, cost::call_of(plan.job, choice));
  }
  return cost::layer_program(plan.job, choice, layer, model::is_frozen_block(plan.job, layer));
}

// The sections of a program that the plan's schedule and recompute use.
class ProgramPage {
 public:
  ProgramPage(const Plan& plan, const model::LayerSpec& layer)
      : call_(cost::call_of(plan.job, choice::choice_of(plan))), program_(program_of(plan, layer)) {
    add(program::Section::kForward);
    const bool selective = plan.job.parallel.recompute == Recompute::kSelective;
    if (selective) add(program::Section::kRematerialize);
    const bool defers = schedule::defers_weight_gradients(*plan.job.parallel.pipeline) &&
                        !program_.section(program::Section::kWeights).empty();
    add(defers ? program::Section::kDeferring : program::Section::kBackward);
    if (defers) add(program::Section::kWeights);
  }

  const std::vector<ProgramSection>& sections() const { return sections_; }
  program::LayerMemory memory() const { return program::memory_of(program_); }
  program::OperationWork forward() const {
    return program::work_of(program_, program::Section::kForward);
  }
  program::OperationWork backward() const {
    return program::work_of(program_, program::Section::kBackward);
  }
  int64_t sent() const { return sent_; }
  // "branch sum (2), bias and activation (1)"; "" for none.
  std::string fusions() const {
    std::string text;
    for (const program::AppliedFusion& fusion : program_.fusions) {
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", fusion.name, fusion.places);
    }
    return text;
  }
  int64_t parameters() const {
    int64_t count = 0;
    for (const program::Value& value : program_.values) {
      if (value.role == program::Role::kParameter) count += value.elements();
    }
    return count;
  }

 private:
  void add(program::Section section) {
    if (program_.section(section).empty()) return;
    ProgramSection made;
    made.name = std::string(program::name_of(section));
    const program::SectionLife life = program::life_of(program_, section);
    const int64_t start = start_bytes(section);
    program::OperationWork all;
    int64_t sent_by_all = 0;
    const std::vector<program::Operation>& operations = program_.section(section);
    for (size_t i = 0; i < operations.size(); ++i) {
      const program::OperationWork work = program::work_of(program_, operations[i]);
      const int64_t sent = sent_bytes(operations[i]);
      all.add(work);
      sent_by_all += sent;
      ProgramLine line{flops_text(work.flops), bytes_text(work.moved_bytes()), bytes_text(sent),
                       text::human_bytes(start + life.alive_bytes[i])};
      describe(operations[i], section, line);
      made.lines.push_back(std::move(line));
    }
    made.sum = {flops_text(all.flops), bytes_text(all.moved_bytes()), bytes_text(sent_by_all),
                text::human_bytes(start + life.peak_bytes)};
    sent_ += sent_by_all;
    sections_.push_back(std::move(made));
  }

  // What the call holds when a section begins.
  int64_t start_bytes(program::Section section) const {
    const program::LayerMemory memory = program::memory_of(program_);
    switch (section) {
      case program::Section::kForward: return 0;
      case program::Section::kBackward:
      case program::Section::kDeferring: {
        int64_t gradients = 0;
        for (const program::ValueId id : program_.output_gradients) {
          gradients += program_.value(id).bytes();
        }
        return memory.saved_bytes + gradients;
      }
      case program::Section::kWeights: return memory.deferred_bytes;
      case program::Section::kRematerialize: return memory.saved_bytes - memory.recomputable_bytes;
    }
    return 0;
  }

  int64_t sent_bytes(const program::Operation& operation) const {
    int64_t bytes = 0;
    for (const program::ProgramMessage& message : program::messages_of(program_, operation)) {
      const bool exchanges = message.op == mesh::CollectiveOp::kAllToAll;
      const int64_t ranks = message.label.starts_with("expert.")    ? call_.expert_degree
                            : message.label.starts_with("context.") ? call_.context.degree()
                                                                    : call_.tensor_degree;
      // What is exchanged has a part for each rank.
      const int64_t count = exchanges ? message.count / ranks : message.count;
      bytes += mesh::wire_bytes(message.op, ranks, 0, count, bytes_of(message.dtype), 0, 1);
    }
    return bytes;
  }

  void describe(const program::Operation& operation, program::Section section,
                ProgramLine& line) const {
    const program::OperationRules& rules = program::rules_of(operation.kind);
    for (const program::ValueId id : operation.outputs) {
      if (id == program::kNoValue) continue;
      const program::Value& value = program_.value(id);
      if (!line.made.empty()) line.made += ", ";
      const bool is_kept = section == program::Section::kForward && is_saved(id);
      line.made += fmt::format("{}{}", value.name, is_kept ? "*" : "");
      if (value.memory == id) {
        line.made += fmt::format(" [{}]", shape_text(value));
      } else {
        line.made += fmt::format(" in place of {}", program_.value(value.memory).name);
      }
    }
    std::string gradients;
    for (const program::ValueId id : operation.gradients) {
      gradients += fmt::format("{}{}", gradients.empty() ? "" : ", ", name_text(program_, id));
    }
    if (!gradients.empty()) {
      line.made += fmt::format("{}{} +=", line.made.empty() ? "" : ", ", gradients);
    }
    std::string operands;
    for (const program::ValueId id : operation.inputs) {
      if (id == program::kNoValue) continue;
      operands += fmt::format("{}{}", operands.empty() ? "" : ", ", name_text(program_, id));
    }
    line.does = fmt::format("{}({})", rules.name, operands);
  }

  bool is_saved(program::ValueId id) const {
    return std::find(program_.saved.begin(), program_.saved.end(), id) != program_.saved.end();
  }

  const model::LayerCall call_;
  const program::LayerProgram program_;
  std::vector<ProgramSection> sections_;
  int64_t sent_ = 0;
};

std::string call_text(const Plan& plan) {
  const model::LayerCall call = cost::call_of(plan.job, choice::choice_of(plan));
  std::string text = fmt::format("a microbatch of {}", call.micro_batch);
  if (call.sequence_length > 1) text += fmt::format(" x {} tokens", call.sequence_length);
  text += fmt::format(", {}", name_of(call.dtype));
  if (call.tensor_degree > 1) {
    text += fmt::format(", rank 0 of {} tensor ranks", call.tensor_degree);
    if (call.sequence_parallel) text += " that split sequences";
  }
  if (call.context.degree() > 1) {
    text += fmt::format(", a part of {} of each sequence", call.context.degree());
  }
  if (!is_executed(plan)) {
    text += fmt::format("; as {} runs it on GPUs", framework::framework_of(plan.job).title);
  }
  return text;
}

const char* const kLegend =
    "* is kept for the backward. 'alive' is what the call holds behind an operation, without its "
    "inputs and weights; in the last line of a section, the most at once.";

std::vector<std::string> summary_head() {
  return {"layers", "parameters", "kept", "forward peak", "backward peak", "flops", "sent"};
}

std::vector<std::string> summary_row(const AlikeLayers& alike, const ProgramPage& page) {
  const program::LayerMemory memory = page.memory();
  return {alike.name(),
          text::human_count(static_cast<double>(page.parameters())),
          text::human_bytes(memory.saved_bytes),
          text::human_bytes(memory.forward_peak_bytes),
          text::human_bytes(memory.backward_peak_bytes),
          flops_text(page.forward().flops + page.backward().flops),
          bytes_text(page.sent())};
}

// Columns as wide as what stands in them; the first one to the left.
std::string columns_text(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      text += i == 0 ? fmt::format("{:<{}}", row[i], widths[i])
                     : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    text += '\n';
  }
  return text;
}

std::string line_text(const ProgramLine& line) {
  const bool adds = line.made.ends_with("+=");
  const bool equals = !line.made.empty() && !line.does.empty();
  return fmt::format("{:>12} {:>10} {:>10} {:>10}   {}{}{}\n", line.flops, line.moved, line.sent,
                     line.alive, line.made,
                     !equals ? ""
                     : adds  ? " "
                             : " = ",
                     line.does);
}

}  // namespace

std::string layers_text(const Plan& plan, std::string_view layer) {
  const std::vector<AlikeLayers> groups = chosen_layers(plan.job.model, layer);
  std::vector<std::vector<std::string>> summary{summary_head()};
  std::string unknown, programs;
  for (const AlikeLayers& alike : groups) {
    const std::vector<std::string> reasons = what_prevents(plan);
    if (!reasons.empty()) {
      unknown += sentence_of_unknown(alike, reasons);
      continue;
    }
    const ProgramPage page(plan, alike.layers.front());
    summary.push_back(summary_row(alike, page));
    programs += fmt::format("\n{}\n", alike.name());
    if (!page.fusions().empty()) programs += fmt::format("  fused: {}\n", page.fusions());
    for (const ProgramSection& section : page.sections()) {
      programs += fmt::format("\n  {}\n", section.name);
      programs += line_text({"flops", "moved", "sent", "alive"});
      for (const ProgramLine& line : section.lines) programs += line_text(line);
      ProgramLine sum = section.sum;
      sum.made = fmt::format("in all, {} operations", section.lines.size());
      programs += line_text(sum);
    }
  }
  std::string text = fmt::format("{}: {}\n", plan.job.model.name, call_text(plan));
  text += unknown;
  if (summary.size() > 1) text += '\n' + columns_text(summary) + '\n' + kLegend + '\n' + programs;
  return text;
}

std::string layers_html(const Plan& plan, std::string_view layer) {
  std::vector<page::Section> sections;
  std::vector<std::vector<std::string>> summary;
  for (const AlikeLayers& alike : chosen_layers(plan.job.model, layer)) {
    const std::vector<std::string> reasons = what_prevents(plan);
    if (!reasons.empty()) {
      const std::string text = page::escape(sentence_of_unknown(alike, reasons));
      sections.push_back({alike.name(), fmt::format("<p>{}</p>", text)});
      continue;
    }
    const ProgramPage program_page(plan, alike.layers.front());
    summary.push_back(summary_row(alike, program_page));
    for (const ProgramSection& section : program_page.sections()) {
      std::vector<std::vector<std::string>> rows;
      for (const ProgramLine& line : section.lines) {
        rows.push_back({line.made, line.does, line.flops, line.moved, line.sent, line.alive});
      }
      const ProgramLine& sum = section.sum;
      const bool is_first = &section == &program_page.sections().front();
      std::string fused;
      if (is_first && !program_page.fusions().empty()) {
        fused = fmt::format("<p>fused: {}</p>", page::escape(program_page.fusions()));
      }
      rows.push_back({"in all", "", sum.flops, sum.moved, sum.sent, sum.alive});
      sections.push_back(
          {fmt::format("{}: {}", alike.name(), section.name),
           fused + page::table({"makes", "by", "flops", "moved", "sent", "alive"}, rows)});
    }
  }
  if (!summary.empty()) {
    sections.insert(sections.begin(), {"Layers", page::table(summary_head(), summary) + "<p>" +
                                                     page::escape(kLegend) + "</p>"});
  }
  return page::page(fmt::format("The layers of {}", plan.job.model.name), call_text(plan), sections,
                    fmt::format("From the program of each layer, which {}.",
                                is_executed(plan) ? "the ranks execute" : "the planner prices"));
}

}  // namespace smp::report
