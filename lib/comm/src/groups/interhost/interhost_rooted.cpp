#include <algorithm>

#include "groups/interhost/interhost_steps.h"
#include "reduce/copy.h"
#include "reduce/reduce.h"

// The collectives between hosts in which ranks give different ranks different things. Words as in
// interhost_collectives.cpp. A message on the rail of the root's place has the data of a whole
// host.
namespace smp::groups {
namespace {

// The order in which a rail carries the data that a host gathers or distributes: in the order of
// memory or, if the part of each member is longer than a piece, in rounds of one piece of each
// member. A round is then gathered or distributed while another round travels. Pieces are numbered
// in the order of sending.
struct Rounds {
  Rounds(int64_t part, int per_host, int64_t piece)
      : rows(part > piece ? per_host : 1),
        row_bytes(part * per_host / rows),
        most(piece),
        count(std::max<int64_t>(1, progress::div_up(row_bytes, piece))) {}

  bool are_steps() const { return rows > 1; }
  int64_t pieces() const { return count * rows; }
  int64_t begin(int64_t i) const { return i / rows * most; }  // of piece i in its row
  int64_t bytes(int64_t i) const { return std::min(most, row_bytes - begin(i)); }
  int64_t at(int64_t i) const { return i % rows * row_bytes + begin(i); }  // in the block
  int64_t packed(int64_t i) const { return begin(i) * rows + i % rows * bytes(i); }

  int64_t rows, row_bytes, most, count;
};

}  // namespace

// In rounds of a message: the members of a host sum the next round while this round travels.
progress::Program InterhostGroup::run_reduce(progress::Operation& op, ConstBytes in, Bytes out) {
  const progress::Call& call = op.call;
  const bool wide = widens(call, per_host_);
  const DType dtype = wide ? DType::kF32 : call.dtype;
  const int64_t narrow_element = bytes_of(call.dtype), element = bytes_of(dtype);
  const int64_t most = round_bytes(call.count * element) / element;
  const int64_t rounds = std::max<int64_t>(1, progress::div_up(call.count, most));
  const int root = call.peer, root_host = root / per_host_, root_place = root % per_host_;
  const bool sends = place_ == root_place && rank_ != root;
  const std::string label = step_label(op);
  std::vector<ConstBytes> from(static_cast<size_t>(hosts_));
  uint64_t zero_copy_sent[] = {0, 0};  // of the partials of two rounds
  if (local_) scratch_.resize(size_t(2 * mesh::kMessageBytes));
  if (wide) more_scratch_.resize(size_t(2 * mesh::kMessageBytes));
  auto length = [&](int64_t k) { return std::min(most, call.count - k * most); };
  auto source = [&](int64_t k) { return in + k * most * narrow_element; };
  auto partial = [&](int64_t k) { return scratch_.data() + k % 2 * mesh::kMessageBytes; };
  for (int64_t k = -1; k < rounds; ++k) {
    if (local_ && k + 1 < rounds) {
      // This partial overwrites the partial of two rounds before.
      if (sends)
        co_await op.reaches(rail(root_host).zero_copy_done(), zero_copy_sent[(k + 1) % 2], root);
      ConstBytes input = source(k + 1);
      if (wide) {
        const Bytes widened = more_scratch_.data() + (k + 1) % 2 * mesh::kMessageBytes;
        reduce::widen(reinterpret_cast<float*>(widened), input, length(k + 1), call.dtype);
        input = widened;
      }
      started(op, local_->reduce(input, partial(k + 1), length(k + 1), dtype, partial_op(call),
                                 root_place, label));
    }
    if (k < 0) continue;
    if (local_) co_await steps_done_but(op, k + 1 < rounds ? 1 : 0);
    const int64_t n = length(k);
    const ConstBytes own = local_ ? partial(k) : source(k);
    if (rank_ == root) {
      from[size_t(host_)] = own;
      for (int step = 1; step < hosts_; ++step) {
        const int host = net::take_from(host_, step, hosts_), peer = member(host, place_);
        co_await message_of(op, rail(host), peer);
        check_message(op, rail(host), peer);
        from[size_t(host)] = rail(host).front_bytes();
      }
      const Bytes result = out + k * most * narrow_element, sum = wide ? partial(k) : result;
      reduce::reduce_inputs(sum, from.data(), hosts_, n, dtype, call.reduce_op, size_);
      if (wide) reduce::narrow(result, reinterpret_cast<float*>(sum), n, call.dtype);
      for (int step = 1; step < hosts_; ++step) rail(net::take_from(host_, step, hosts_)).take();
    } else if (sends) {
      co_await may_send(op, rail(root_host), root);
      while (!has_room(rail(root_host), n * element)) co_await room_made(op, root);
      send_message(op, rail(root_host), root, own, n * element);
      zero_copy_sent[k % 2] = rail(root_host).zero_copy_sent();
    }
  }
  if (sends) co_await zero_copies_done(op, root_host);
}

progress::Program InterhostGroup::run_gather(progress::Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes(), block = bytes * per_host_;
  const int64_t element = bytes_of(op.call.dtype);
  const int root = op.call.peer, root_host = root / per_host_, root_place = root % per_host_;
  const bool sends = place_ == root_place && rank_ != root;
  const MessagePath path = path_of(block);
  const Rounds rounds(bytes, per_host_, path.most);
  const bool are_steps = host_ != root_host && rounds.are_steps();
  const std::string label = step_label(op);
  if (local_ && sends) scratch_.resize(size_t(block));
  auto gather = [&](ConstBytes from, Bytes to, int64_t n) {
    started(op, local_->gather(from, to, n / element, op.call.dtype, root_place, label));
  };
  for (int64_t i = 0; are_steps && i < rounds.pieces(); i += rounds.rows)
    gather(in + rounds.begin(i), sends ? scratch_.data() + rounds.packed(i) : nullptr,
           rounds.bytes(i));
  if (local_ && !are_steps)
    gather(in, rank_ == root ? out + host_ * block : scratch_.data(), bytes);
  if (!local_ && rank_ == root) reduce::copy_bytes(out + host_ * block, in, block);
  for (int step = 1; step < hosts_ && rank_ == root && path.is_zero_copy; ++step) {
    const int host = net::take_from(host_, step, hosts_);
    for (int64_t i = 0; i < rounds.pieces(); ++i)
      rail(host).expect(op.call, out + host * block + rounds.at(i), rounds.bytes(i));
    rail(host).advertise();
  }
  const ConstBytes ours = local_ ? scratch_.data() : in;
  for (int64_t i = 0; i < rounds.pieces(); ++i) {
    const int64_t n = rounds.bytes(i);
    if (sends) {
      const int64_t later = are_steps ? rounds.count - 1 - i / rounds.rows : 0;
      co_await steps_done_but(op, int(later));
      co_await may_send(op, rail(root_host), root, path);
      while (!has_room(rail(root_host), n)) co_await room_made(op, root);
      send_message(op, rail(root_host), root, ours + rounds.packed(i), n, path);
    }
    for (int step = 1; step < hosts_ && rank_ == root; ++step) {
      const int host = net::take_from(host_, step, hosts_), peer = member(host, place_);
      co_await message_of(op, rail(host), peer, path);
      take_message(op, rail(host), peer, out + host * block + rounds.at(i), n, path);
    }
  }
  if (sends) co_await zero_copies_done(op, root_host);
  co_await all_steps_done(op);
}

progress::Program InterhostGroup::run_scatter(progress::Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes(), block = bytes * per_host_;
  const int64_t element = bytes_of(op.call.dtype);
  const int root = op.call.peer, root_host = root / per_host_, root_place = root % per_host_;
  const bool takes = place_ == root_place && rank_ != root;
  const MessagePath path = path_of(block);
  const Rounds rounds(bytes, per_host_, path.most);
  const bool are_steps = host_ != root_host && rounds.are_steps();
  const std::string label = step_label(op);
  if (takes) scratch_.resize(size_t(block));
  auto hand_out = [&](ConstBytes from, Bytes to, int64_t n) {
    if (local_)
      started(op, local_->scatter(from, to, n / element, op.call.dtype, root_place, label));
    else
      reduce::copy_bytes(to, from, n);
  };
  if (host_ == root_host) hand_out(rank_ == root ? in + host_ * block : nullptr, out, bytes);
  for (int64_t i = 0; path.is_zero_copy && takes && i < rounds.pieces(); ++i)
    rail(root_host).expect(op.call, scratch_.data() + rounds.packed(i), rounds.bytes(i));
  if (path.is_zero_copy && takes) rail(root_host).advertise();
  for (int64_t i = 0; i < rounds.pieces(); ++i) {
    const int64_t n = rounds.bytes(i);
    for (int step = 1; step < hosts_ && rank_ == root; ++step) {
      const int host = net::send_to(host_, step, hosts_), peer = member(host, place_);
      co_await may_send(op, rail(host), peer, path);
      while (!has_room(rail(host), n)) co_await room_made(op, peer);
      send_message(op, rail(host), peer, in + host * block + rounds.at(i), n, path);
    }
    if (takes) {
      co_await message_of(op, rail(root_host), root, path);
      take_message(op, rail(root_host), root, scratch_.data() + rounds.packed(i), n, path);
    }
    if (const int64_t first = i + 1 - rounds.rows; are_steps && (i + 1) % rounds.rows == 0)
      hand_out(takes ? scratch_.data() + rounds.packed(first) : nullptr, out + rounds.begin(i), n);
  }
  if (host_ != root_host && !are_steps) hand_out(scratch_.data(), out, bytes);
  for (int step = 1; step < hosts_ && rank_ == root; ++step)
    co_await zero_copies_done(op, net::send_to(host_, step, hosts_));
  co_await all_steps_done(op);
}

// Inside a host each member collects the data of all members for the ranks at its place, and then
// sends that data on the rails. Data longer than a message is collected host by host, the own host
// last, so that the data for the first host travels while the next is collected.
progress::Program InterhostGroup::run_all_to_all(progress::Operation& op, ConstBytes in,
                                                 Bytes out) {
  const int64_t bytes = op.call.bytes(), block = bytes * per_host_;
  const bool by_host = local_ && block > mesh::kMessageBytes;
  const std::string label = step_label(op);
  if (local_) scratch_.resize(size_t(block * hosts_));
  for (int step = 1; step <= hosts_ && by_host; ++step) {
    const int host = net::send_to(host_, step, hosts_);
    const Bytes to = host == host_ ? out : scratch_.data();
    started(op, local_->all_to_all(in + host * block, to + host * block, op.call.count,
                                   op.call.dtype, label));
  }
  if (local_ && !by_host) {
    more_scratch_.resize(size_t(block * hosts_));
    auto by_place = [&](Bytes data, int place, int host) {
      return data + (place * hosts_ + host) * bytes;
    };
    for (int r = 0; r < size_; ++r)
      reduce::copy_bytes(by_place(scratch_.data(), r % per_host_, r / per_host_), in + r * bytes,
                         bytes);
    started(op, local_->all_to_all(scratch_.data(), more_scratch_.data(), op.call.count * hosts_,
                                   op.call.dtype, label));
    co_await all_steps_done(op);
    for (int r = 0; r < size_; ++r)
      reduce::copy_bytes(scratch_.data() + r * bytes,
                         by_place(more_scratch_.data(), r % per_host_, r / per_host_), bytes);
  }
  // By host, then by the member here that the data comes from.
  const ConstBytes blocks = local_ ? scratch_.data() : in;
  if (!by_host) reduce::copy_bytes(out + host_ * block, blocks + host_ * block, block);
  const MessagePath path = path_of(block);
  for (int step = 1; step < hosts_ && path.is_zero_copy; ++step) {
    const int host = net::take_from(host_, step, hosts_);
    rail(host).expect(op.call, out + host * block, block);
    rail(host).advertise();
  }
  const int64_t rounds = std::max<int64_t>(1, progress::div_up(block, path.most));
  for (int64_t k = 0; k <= rounds; ++k) {
    const int64_t at = k * path.most, n = std::min(path.most, block - at);
    for (int step = 1; step < hosts_ && k < rounds; ++step) {
      const int host = net::send_to(host_, step, hosts_), peer = member(host, place_);
      if (by_host && k == 0) co_await steps_done_but(op, hosts_ - step);
      co_await may_send(op, rail(host), peer, path);
      while (!has_room(rail(host), n)) co_await room_made(op, peer);
      send_message(op, rail(host), peer, blocks + host * block + at, n, path);
    }
    for (int step = 1; step < hosts_ && k > 0; ++step) {
      const int host = net::take_from(host_, step, hosts_), peer = member(host, place_);
      co_await message_of(op, rail(host), peer, path);
      const int64_t begin = at - path.most;
      take_message(op, rail(host), peer, out + host * block + begin,
                   std::min(path.most, block - begin), path);
    }
  }
  for (int step = 1; step < hosts_; ++step)
    co_await zero_copies_done(op, net::send_to(host_, step, hosts_));
  co_await all_steps_done(op);
}

}  // namespace smp::groups
