#include "program/layers/head_exchange.h"

namespace smp::program {

HeadExchange::HeadExchange(ProgramBuilder& builder, const AttentionAttributes& attention)
    : builder_(builder), attention_(attention), degree_(builder.call().context.exchange) {}

ValueId HeadExchange::exchanged(ValueId x, std::string_view label, bool to_heads, int64_t q,
                                int64_t k, int64_t v) const {
  if (!exists()) return x;
  const Value from = builder_.value(x);
  Shape shape = from.shape;
  if (to_heads) {
    shape[0].size *= degree_;
    shape[1].size /= degree_;
  } else {
    shape[0].size /= degree_;
    shape[1].size *= degree_;
  }
  const ValueId y =
      builder_.made(from.name + (to_heads ? " by heads" : " by tokens"), shape, from.dtype);
  builder_.add(OperationKind::kExchange, {x}, {y},
               ExchangeAttributes{.label = label,
                                  .to_heads = to_heads,
                                  .degree = degree_,
                                  .batch = attention_.batch,
                                  .columns = {q * degree_, k * degree_, v * degree_}});
  return y;
}

ValueId HeadExchange::packed_to_heads(ValueId x, std::string_view label) const {
  const AttentionAttributes& a = attention_;
  return exchanged(x, label, true, a.heads * a.head_dim, a.kv_heads * a.head_dim,
                   a.kv_heads * a.value_width());
}

ValueId HeadExchange::packed_to_tokens(ValueId x, std::string_view label) const {
  const AttentionAttributes& a = attention_;
  return exchanged(x, label, false, a.heads * a.head_dim, a.kv_heads * a.head_dim,
                   a.kv_heads * a.value_width());
}

ValueId HeadExchange::result_to_heads(ValueId x, std::string_view label) const {
  return exchanged(x, label, true, attention_.heads * attention_.value_width(), 0, 0);
}

ValueId HeadExchange::result_to_tokens(ValueId x, std::string_view label) const {
  return exchanged(x, label, false, attention_.heads * attention_.value_width(), 0, 0);
}

}  // namespace smp::program
