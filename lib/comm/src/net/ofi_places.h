#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "net/ofi_objects.h"
#include "net/transport.h"

namespace smp::net {

// Memory that a provider knows: its own alone, or also its peers'.
class OfiRegion {
 public:
  // `key` counts where the provider does not make one. Returns 0 or an error of libfabric.
  int open(fid_domain* domain, fid_ep* endpoint, const fi_info& info, std::byte* memory,
           size_t bytes, uint64_t access, uint64_t key);
  void close() { region_.close(); }
  bool is_open() const { return region_.get() != nullptr; }
  void* descriptor() const { return is_open() ? fi_mr_desc(region_.get()) : nullptr; }
  // Where `memory`, which is part of it, is for peers.
  Transport::Place place_of(const std::byte* memory) const;

 private:
  Closing<fid_mr> region_;
  std::byte* begin_ = nullptr;
  bool has_addresses_ = false;  // those of memory; offsets otherwise
};

// The receives that peers write to, each once. The 32 bits that come with a write, its ticket, say
// which; a ticket that has ended is not used again for a while.
class OfiPlaces {
 public:
  // Makes the receive's place, in `region` or, if there is none, in memory that it opens for this
  // receive alone. Returns 0 or an error of libfabric.
  int open(Transport::Transfer& receive, const OfiRegion* region, fid_domain* domain,
           fid_ep* endpoint, const fi_info& info, uint64_t key);
  // Ends what a peer has written to: that receive, or nullptr if it had been closed before.
  Transport::Transfer* arrived(uint64_t ticket);
  // False if it is not open.
  bool close(const Transport::Transfer& receive);
  void close_all();

 private:
  static constexpr uint32_t kIndexBits = 20;
  struct Opened {
    Transport::Transfer* receive = nullptr;
    OfiRegion region;
    uint32_t ticket = 0;
  };
  Opened* find(uint64_t ticket);
  void end(Opened& opened);

  std::deque<Opened> opened_;
  std::deque<uint32_t> free_;  // indices; the one that has been free for longest comes first
};

}  // namespace smp::net
