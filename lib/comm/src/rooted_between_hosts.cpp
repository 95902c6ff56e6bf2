#include <algorithm>

#include "copy.h"
#include "hosts_steps.h"
#include "reduce.h"

// The collectives between hosts in which ranks give different ranks different things. Words as in
// between_hosts.cpp. On the rail of the root's place a message holds what a whole host has.
namespace smp::shm {

Program HostsGroup::run_reduce(Operation& op, ConstBytes in, Bytes out) {
  const Call& call = op.call;
  const bool wide = widens(call, per_host_);
  const DType dtype = wide ? DType::kF32 : call.dtype;
  const int64_t narrow_element = bytes_of(call.dtype), element = bytes_of(dtype);
  const int64_t most = kMessageBytes / element;
  const int root = call.peer, root_host = root / per_host_, root_place = root % per_host_;
  const std::string label = step_label(op);
  std::vector<ConstBytes> from(static_cast<size_t>(hosts_));
  scratch_.resize(size_t(kMessageBytes));
  if (wide) more_scratch_.resize(size_t(kMessageBytes));
  int64_t at = 0;
  do {
    const int64_t n = std::min(most, call.count - at);
    ConstBytes partial = in + at * narrow_element;
    if (local_) {
      if (wide) {
        widen(reinterpret_cast<float*>(more_scratch_.data()), partial, n, call.dtype);
        partial = more_scratch_.data();
      }
      started(op, local_->reduce(partial, scratch_.data(), n, dtype, partial_op(call), root_place,
                                 label));
      co_await all_steps_done(op);
      partial = scratch_.data();
    }
    if (rank_ == root) {
      from[size_t(host_)] = partial;
      for (int step = 1; step < hosts_; ++step) {
        const int host = take_from(host_, step, hosts_), peer = member(host, place_);
        co_await message_of(op, rail(host), peer);
        check_message(op, rail(host), peer);
        from[size_t(host)] = rail(host).front_bytes();
      }
      Bytes sum = wide ? scratch_.data() : out + at * element;
      reduce_inputs(sum, from.data(), hosts_, n, dtype, call.reduce_op, size_);
      if (wide) narrow(out + at * narrow_element, reinterpret_cast<float*>(sum), n, call.dtype);
      for (int step = 1; step < hosts_; ++step) rail(take_from(host_, step, hosts_)).take();
    } else if (place_ == root_place) {
      co_await may_send(op, rail(root_host), root);
      while (!has_room(rail(root_host), n * element)) co_await room_made(op, root);
      send_message(op, rail(root_host), root, partial, n * element);
      co_await all_left(op, root_host);  // the next partial will lie where this does
    }
    at += most;
  } while (at < call.count);
}

Program HostsGroup::run_gather(Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes(), block = bytes * per_host_;
  const int root = op.call.peer, root_host = root / per_host_, root_place = root % per_host_;
  ConstBytes ours = in;
  if (local_) {
    Bytes to = nullptr;
    if (rank_ == root) {
      to = out + host_ * block;
    } else if (place_ == root_place) {
      scratch_.resize(size_t(block));
      to = scratch_.data();
    }
    started(op, local_->gather(in, to, op.call.count, op.call.dtype, root_place, step_label(op)));
    co_await all_steps_done(op);
    ours = to;
  }
  if (place_ != root_place) co_return;
  if (rank_ == root) copy_bytes(out + host_ * block, ours, block);
  const Way way = way_of(block);
  for (int step = 1; step < hosts_ && rank_ == root && way.is_straight; ++step) {
    const int host = take_from(host_, step, hosts_);
    rail(host).expect(op.call, out + host * block, block);
    rail(host).expose();
  }
  int64_t at = 0;
  do {
    const int64_t n = std::min(way.most, block - at);
    if (rank_ != root) {
      co_await may_send(op, rail(root_host), root, way);
      while (!has_room(rail(root_host), n)) co_await room_made(op, root);
      send_message(op, rail(root_host), root, ours + at, n, way);
    }
    for (int step = 1; step < hosts_ && rank_ == root; ++step) {
      const int host = take_from(host_, step, hosts_), peer = member(host, place_);
      co_await message_of(op, rail(host), peer, way);
      take_message(op, rail(host), peer, out + host * block + at, n, way);
    }
    at += way.most;
  } while (at < block);
  if (rank_ != root) co_await all_left(op, root_host);
}

Program HostsGroup::run_scatter(Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes(), block = bytes * per_host_;
  const int root = op.call.peer, root_host = root / per_host_, root_place = root % per_host_;
  ConstBytes ours = nullptr;
  if (rank_ == root) {
    ours = in + host_ * block;
  } else if (place_ == root_place) {
    scratch_.resize(size_t(block));
    ours = scratch_.data();
  }
  const Way way = way_of(block);
  if (way.is_straight && rank_ != root && place_ == root_place) {
    rail(root_host).expect(op.call, scratch_.data(), block);
    rail(root_host).expose();
  }
  int64_t at = 0;
  do {
    const int64_t n = std::min(way.most, block - at);
    for (int step = 1; step < hosts_ && rank_ == root; ++step) {
      const int host = send_to(host_, step, hosts_), peer = member(host, place_);
      co_await may_send(op, rail(host), peer, way);
      while (!has_room(rail(host), n)) co_await room_made(op, peer);
      send_message(op, rail(host), peer, in + host * block + at, n, way);
    }
    if (rank_ != root && place_ == root_place) {
      co_await message_of(op, rail(root_host), root, way);
      take_message(op, rail(root_host), root, scratch_.data() + at, n, way);
    }
    at += way.most;
  } while (at < block);
  for (int step = 1; step < hosts_ && rank_ == root; ++step)
    co_await all_left(op, send_to(host_, step, hosts_));
  if (!local_) {
    copy_bytes(out, ours, bytes);
    co_return;
  }
  started(op, local_->scatter(ours, out, op.call.count, op.call.dtype, root_place, step_label(op)));
  co_await all_steps_done(op);
}

// Inside a host each member collects what all of them have for the ranks at its place, then the
// rails carry it.
Program HostsGroup::run_all_to_all(Operation& op, ConstBytes in, Bytes out) {
  const int64_t bytes = op.call.bytes(), block = bytes * per_host_;
  ConstBytes blocks = in;  // by host, then by the member here that it comes from
  if (local_) {
    scratch_.resize(size_t(block * hosts_));
    more_scratch_.resize(size_t(block * hosts_));
    auto by_place = [&](Bytes data, int place, int host) {
      return data + (place * hosts_ + host) * bytes;
    };
    for (int r = 0; r < size_; ++r)
      copy_bytes(by_place(scratch_.data(), r % per_host_, r / per_host_), in + r * bytes, bytes);
    started(op, local_->all_to_all(scratch_.data(), more_scratch_.data(), op.call.count * hosts_,
                                   op.call.dtype, step_label(op)));
    co_await all_steps_done(op);
    for (int r = 0; r < size_; ++r)
      copy_bytes(scratch_.data() + r * bytes,
                 by_place(more_scratch_.data(), r % per_host_, r / per_host_), bytes);
    blocks = scratch_.data();
  }
  copy_bytes(out + host_ * block, blocks + host_ * block, block);
  const Way way = way_of(block);
  for (int step = 1; step < hosts_ && way.is_straight; ++step) {
    const int host = take_from(host_, step, hosts_);
    rail(host).expect(op.call, out + host * block, block);
    rail(host).expose();
  }
  const int64_t rounds = std::max<int64_t>(1, div_up(block, way.most));
  for (int64_t k = 0; k <= rounds; ++k) {
    const int64_t at = k * way.most, n = std::min(way.most, block - at);
    for (int step = 1; step < hosts_ && k < rounds; ++step) {
      const int host = send_to(host_, step, hosts_), peer = member(host, place_);
      co_await may_send(op, rail(host), peer, way);
      while (!has_room(rail(host), n)) co_await room_made(op, peer);
      send_message(op, rail(host), peer, blocks + host * block + at, n, way);
    }
    for (int step = 1; step < hosts_ && k > 0; ++step) {
      const int host = take_from(host_, step, hosts_), peer = member(host, place_);
      co_await message_of(op, rail(host), peer, way);
      const int64_t begin = at - way.most;
      take_message(op, rail(host), peer, out + host * block + begin,
                   std::min(way.most, block - begin), way);
    }
  }
  for (int step = 1; step < hosts_; ++step) co_await all_left(op, send_to(host_, step, hosts_));
}

}  // namespace smp::shm
