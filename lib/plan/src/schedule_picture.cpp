#include "smp/plan/schedule_picture.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "smp/plan/check.h"

namespace smp {
namespace {

constexpr int64_t kForwardColumns = 1;
constexpr int64_t kBackwardColumns = 2;

struct Pass {
  bool forward;
  int64_t microbatch;
};

std::vector<Pass> passes_of(const std::vector<Action>& actions) {
  std::vector<Pass> passes;
  for (const Action& action : actions) {
    const bool forward = action.kind == ActionKind::kForward;
    if (!forward && action.kind != ActionKind::kBackward) continue;
    const bool goes_on = !passes.empty() && passes.back().forward == forward &&
                         passes.back().microbatch == action.microbatch;
    if (!goes_on) passes.push_back({forward, action.microbatch});
  }
  return passes;
}

// Runs the passes of all stages on a clock; a pass begins when its stage is free and its neighbour
// has ended the same pass.
class Timeline {
 public:
  explicit Timeline(const Schedule& schedule) : schedule_(schedule) {
    for (const auto& actions : schedule.actions) passes_.push_back(passes_of(actions));
    lines_.resize(passes_.size());
    next_.resize(passes_.size(), 0);
  }

  std::vector<std::vector<std::string>> run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t stage = 0; stage < passes_.size(); ++stage) {
        while (next_[stage] < passes_[stage].size() && place(stage)) moved = true;
      }
    }
    for (size_t stage = 0; stage < passes_.size(); ++stage) {
      SMP_CHECK_EQ(next_[stage], passes_[stage].size());
    }
    return std::move(lines_);
  }

 private:
  // Appends the stage's next pass to its line if its input exists.
  bool place(size_t stage) {
    const Pass pass = passes_[stage][next_[stage]];
    const auto last = static_cast<size_t>(schedule_.stages) - 1;
    const bool has_input = pass.forward ? stage > 0 : stage < last;
    int64_t input_ends = 0;
    if (has_input) {
      const size_t neighbour = pass.forward ? stage - 1 : stage + 1;
      const auto found = ends_.find({neighbour, pass.forward, pass.microbatch});
      if (found == ends_.end()) return false;
      input_ends = found->second;
    }
    std::vector<std::string>& line = lines_[stage];
    const auto begin = std::max<size_t>(line.size(), static_cast<size_t>(input_ends));
    line.resize(begin, ".");
    std::string cell(1, pass.forward ? 'F' : 'B');
    cell += std::to_string(pass.microbatch);
    line.resize(begin + (pass.forward ? kForwardColumns : kBackwardColumns), cell);
    ends_[{stage, pass.forward, pass.microbatch}] = static_cast<int64_t>(line.size());
    ++next_[stage];
    return true;
  }

  const Schedule& schedule_;
  std::vector<std::vector<Pass>> passes_;        // per stage
  std::vector<size_t> next_;                     // index of the pass to place
  std::vector<std::vector<std::string>> lines_;  // cells, per stage
  std::map<std::tuple<size_t, bool, int64_t>, int64_t> ends_;
};

}  // namespace

std::string draw(const Schedule& schedule) {
  std::vector<std::vector<std::string>> lines = Timeline(schedule).run();
  size_t columns = 0, width = 1;
  for (const auto& line : lines) {
    columns = std::max(columns, line.size());
    for (const std::string& cell : line) width = std::max(width, cell.size());
  }
  std::string out;
  for (size_t stage = 0; stage < lines.size(); ++stage) {
    lines[stage].resize(columns, ".");
    out += "stage ";
    out += std::to_string(stage);
    out += " |";
    for (std::string& cell : lines[stage]) {
      cell.resize(width, ' ');
      out += ' ';
      out += cell;
    }
    out.erase(out.find_last_not_of(' ') + 1);
    out += '\n';
  }
  return out;
}

}  // namespace smp
