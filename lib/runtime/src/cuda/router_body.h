#pragma once

#include <cmath>

#include "cuda/block.h"
#include "kernels/expert_math.h"

// A router of a mixture of experts (kernels/expert_functions.h), in the wide type. One block per
// token, but where it says otherwise.
namespace smp::cuda {

// Scores [tokens, experts] become probabilities; log_sums may be null.
template <typename Block, typename C>
SMP_HOST_DEVICE void router_probabilities(Block& block, const program::RouterAttributes& router,
                                          int64_t tokens, C* scores, C* log_sums) {
  for_each_row(block, tokens, [&](int64_t token) {
    C* const x = scores + token * router.experts;
    C highest = -INFINITY;
    for_each_column(block, router.experts, [&](int64_t e) {
      if (x[e] > highest) highest = x[e];
    });
    highest = block.maximum(highest);
    C sum = 0;
    for_each_column(block, router.experts, [&](int64_t e) { sum += std::exp(x[e] - highest); });
    sum = block.sum(sum);
    if (log_sums != nullptr && block.thread() == 0) log_sums[token] = highest + std::log(sum);
    for_each_column(block, router.experts, [&](int64_t e) {
      x[e] = router.kind == RouterKind::kSigmoid ? C(1) / (C(1) + std::exp(-x[e]))
                                                 : std::exp(x[e] - highest) / sum;
    });
  });
}

// The probability by which an expert is chosen.
template <typename C>
SMP_HOST_DEVICE C choosing(const C* probabilities, const C* bias, int64_t expert) {
  return bias != nullptr ? probabilities[expert] + bias[expert] : probabilities[expert];
}

// [tokens, groups]: the best of a group of experts, one thread per group. Of softmaxes the largest
// (DeepSeek-V2, arXiv:2405.04434 section 2.2.2), of sigmoids the sum of the two largest
// (DeepSeek-V3, arXiv:2412.19437 section 2.1.2).
template <typename Block, typename C>
SMP_HOST_DEVICE void group_scores(const Block& block, const program::RouterAttributes& router,
                                  int64_t tokens, const C* bias, const C* probabilities,
                                  C* scores) {
  const int64_t size = router.experts / router.groups;
  for_each(block, tokens * router.groups, [&](int64_t i) {
    const int64_t token = i / router.groups, first = i % router.groups * size;
    C largest = -INFINITY, second = -INFINITY;
    for (int64_t e = first; e < first + size; ++e) {
      const C score = choosing(probabilities + token * router.experts, bias, e);
      if (score > largest) {
        second = largest;
        largest = score;
      } else if (score > second) {
        second = score;
      }
    }
    scores[i] = router.kind == RouterKind::kSigmoid && size > 1 ? largest + second : largest;
  });
}

// A value and its place. Larger values come first, of equal ones the first place.
template <typename C>
struct Ranked {
  C value = INFINITY;
  int64_t place = -1;

  SMP_HOST_DEVICE bool is_behind(const Ranked& other) const {
    return value < other.value || (value == other.value && place > other.place);
  }
};

// The first of `count` values behind `last`; all threads of the block get it. Without one, since
// values are NaN, the last.
template <typename Block, typename C, typename Value>
SMP_HOST_DEVICE Ranked<C> next_of(Block& block, int64_t count, const Ranked<C>& last,
                                  const Value& value) {
  C best = -INFINITY;
  for_each_column(block, count, [&](int64_t i) {
    const Ranked<C> one{value(i), i};
    if (one.is_behind(last) && one.value > best) best = one.value;
  });
  best = block.maximum(best);
  C place = -C(count - 1);  // negative, so that the largest is the first
  for_each_column(block, count, [&](int64_t i) {
    const Ranked<C> one{value(i), i};
    if (one.value == best && one.is_behind(last) && -C(i) > place) place = -C(i);
  });
  return {best, static_cast<int64_t>(-block.maximum(place))};
}

// Writes the chosen experts of each token, best first, and their weights. `of_groups`: from
// group_scores(); null without groups.
template <typename Block, typename C>
SMP_HOST_DEVICE void choose_experts(Block& block, const program::RouterAttributes& router,
                                    int64_t tokens, const C* bias, const C* probabilities,
                                    const C* of_groups, int32_t* chosen, C* weights) {
  const int64_t size = router.experts / router.groups;
  for_each_row(block, tokens, [&](int64_t token) {
    const C* const p = probabilities + token * router.experts;
    const C* const groups = of_groups != nullptr ? of_groups + token * router.groups : nullptr;
    Ranked<C> last_group;
    for (int64_t i = 0; groups != nullptr && i < router.groups_per_token; ++i) {
      last_group =
          next_of(block, router.groups, last_group, [&](int64_t group) { return groups[group]; });
    }
    const auto value = [&](int64_t e) {
      const bool is_out =
          groups != nullptr && Ranked<C>{groups[e / size], e / size}.is_behind(last_group);
      return is_out ? C(-INFINITY) : choosing(p, bias, e);
    };
    int32_t* const to = chosen + token * router.experts_per_token;
    C* const weight = weights + token * router.experts_per_token;
    Ranked<C> last;
    C sum = 0;
    for (int64_t i = 0; i < router.experts_per_token; ++i) {
      last = next_of(block, router.experts, last, value);
      sum += p[last.place];
      if (block.thread() == 0) to[i] = static_cast<int32_t>(last.place);
    }
    if (block.thread() != 0) return;
    for (int64_t i = 0; i < router.experts_per_token; ++i) {
      C share = p[to[i]];
      if (router.normalizes) share /= sum + kernels::kLeastSum<C>;
      weight[i] = share * C(router.scale);
    }
  });
}

// The operands of choose_experts_backward().
template <typename C>
struct RoutedPointers {
  const int32_t* chosen = nullptr;
  const C* weights = nullptr;
  const C* d_weights = nullptr;
  const C* balance = nullptr;  // by segment and expert; null: no balancing loss
  int64_t tokens_of_segment = 1;
  const C* log_sums = nullptr;  // null: no z loss
  C z = 0;                      // its gradient by the square of a token's log sum
};

// Probabilities [tokens, experts] become the gradients of the scores. kernels/expert_rows.cpp has
// the same, and says why.
template <typename Block, typename C>
SMP_HOST_DEVICE void choose_experts_backward(Block& block, const program::RouterAttributes& router,
                                             int64_t tokens, const RoutedPointers<C>& routed,
                                             C* probabilities) {
  const int64_t k = router.experts_per_token;
  const bool is_sigmoid = router.kind == RouterKind::kSigmoid;
  for_each_row(block, tokens, [&](int64_t token) {
    C* const p = probabilities + token * router.experts;
    const int32_t* const chosen = routed.chosen + token * k;
    const C *weights = routed.weights + token * k, *d_weights = routed.d_weights + token * k;
    const C* balance = nullptr;
    if (routed.balance != nullptr)
      balance = routed.balance + token / routed.tokens_of_segment * router.experts;
    const auto choice_of = [&](int64_t e) {
      for (int64_t i = 0; i < k; ++i) {
        if (kernels::expert_of_choice(chosen[i]) == e) return i;
      }
      return int64_t{-1};
    };
    C mean = 0;  // of the weights' gradients
    for (int64_t i = 0; i < k; ++i) mean += d_weights[i] * weights[i] / C(router.scale);
    C of_chosen = 0, all = 0, balanced = 0, odds = 0;
    for_each_column(block, router.experts, [&](int64_t e) {
      all += p[e];
      if (choice_of(e) >= 0) of_chosen += p[e];
      if (balance != nullptr) balanced += balance[e] * p[e];
      if (routed.log_sums != nullptr && is_sigmoid) odds += kernels::odds_of(p[e]);
    });
    of_chosen = block.sum(of_chosen);
    all = is_sigmoid ? block.sum(all) + kernels::kLeastSum<C> : C(1);
    balanced = is_sigmoid && balance != nullptr ? block.sum(balanced) / all : C(0);
    odds = block.sum(odds);
    const auto of_probability = [&](int64_t e) {
      const int64_t i = choice_of(e);
      C d = 0;
      if (i >= 0) {
        d = router.normalizes
                ? C(router.scale) * (d_weights[i] - mean) / (of_chosen + kernels::kLeastSum<C>)
                : C(router.scale) * d_weights[i];
      }
      return balance != nullptr ? d + (balance[e] - balanced) / all : d;
    };
    C dot = 0;
    if (!is_sigmoid) {
      for_each_column(block, router.experts, [&](int64_t e) { dot += of_probability(e) * p[e]; });
      dot = block.sum(dot);
    }
    const C z = routed.log_sums != nullptr ? 2 * routed.z * routed.log_sums[token] : C(0);
    for_each_column(block, router.experts, [&](int64_t e) {
      const C own = p[e];
      C d = of_probability(e);
      d = is_sigmoid ? d * own * (C(1) - own) : own * (d - dot);
      if (!is_sigmoid) d += z * own;
      if (is_sigmoid && odds > 0) d += z * kernels::odds_of(own) / odds;
      p[e] = d;
    });
  });
}

}  // namespace smp::cuda
