#pragma once

#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

namespace smp::data {

// Which source each sample of a run comes from. Weights are whole numbers w with sum W. Of any
// first n samples a source gives n w / W, to less than one sample. The method is Tijdeman's
// assignment (The chairman assignment problem, Discrete Mathematics 32, 1980): sample n goes to the
// source whose next turn is due first among those whose turn has begun. The order repeats after W
// samples. The next sample costs O(log of the sources); a jump to n costs as much for each of (n
// mod W) samples. Any thread; one reads on at a time.
class Mixture {
 public:
  struct Turn {
    uint32_t source = 0;
    int64_t sample = 0;  // of the source, from 0
    bool operator==(const Turn&) const = default;
  };

  // At most 4096 of them, each >= 1; their sum at most 2^48.
  explicit Mixture(std::vector<int64_t> weights);

  Turn at(int64_t sample) const;

  // How many of the first `samples` come from each source.
  std::vector<int64_t> counts(int64_t samples) const;

  // Whole numbers in the proportion of decimal ones: {0.3, 0.7} gives {3, 7}. Each > 0. Throws
  // ConfigError if they differ too much in size.
  static std::vector<int64_t> whole_weights(const std::vector<double>& weights);

 private:
  // A source's next turn, in samples of the period from 1: from `begin`, rounded up, to the one
  // behind `end`. Both step by W / w; numerators of their fractions are beside them.
  struct Next {
    int64_t begin = 0, end = 0;
    int64_t begin_rest = 0, end_rest = 0;
    int64_t given = 0;  // samples, in this period
  };
  using Due = std::pair<int64_t, uint32_t>;  // sample, source

  void restart() const;
  uint32_t step() const;  // the source of the next sample
  void fill(int64_t sample) const;
  void start_turns(uint32_t source) const;

  std::vector<int64_t> weights_;
  int64_t sum_ = 0, scale_ = 0;  // of fractions: 2 (sources - 1)

  mutable std::mutex mutex_;
  mutable int64_t next_sample_ = 0;  // of the period, that step() gives
  mutable std::vector<Next> next_;
  mutable std::vector<Due> waiting_, open_;  // heaps, the least in front: by begin, by end
  mutable int64_t kept_first_ = 0;           // sample of the run that kept_ begins with
  mutable std::vector<Turn> kept_;
};

}  // namespace smp::data
