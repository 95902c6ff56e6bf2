#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "net/fabric_transport.h"
#include "net/ofi_handles.h"

namespace smp::net {

// A memory region registered with a provider (fid_mr), for local use or also for RMA by peers.
class OfiMemoryRegion {
 public:
  // Registers the memory. The provider may choose the key instead of `key`. Returns 0 or an error
  // of libfabric.
  int open(fid_domain* domain, fid_ep* endpoint, const fi_info& info, std::byte* memory,
           size_t bytes, uint64_t access, uint64_t key);
  void close() { region_.close(); }
  bool is_open() const { return region_.get() != nullptr; }
  void* descriptor() const { return is_open() ? fi_mr_desc(region_.get()) : nullptr; }
  // The remote buffer by which peers reach `memory`, a part of the region.
  FabricTransport::RemoteBuffer place_of(const std::byte* memory) const;

 private:
  FidHandle<fid_mr> region_;
  std::byte* begin_ = nullptr;
  bool has_addresses_ = false;  // remote addresses are addresses of memory, else offsets
};

// The receives to which peers write, each once. A write carries 32 bits of immediate data, its
// ticket, which names the receive. A ticket that has ended is not used again for a while.
class OfiRemoteBuffers {
 public:
  // Makes the receive's remote buffer. It lies in `region`, or, if that is null, in memory
  // registered for this receive alone. Returns 0 or an error of libfabric.
  int open(FabricTransport::Transfer& receive, const OfiMemoryRegion* region, fid_domain* domain,
           fid_ep* endpoint, const fi_info& info, uint64_t key);
  // Ends the receive to which a peer has written and returns it; null if it had been closed before.
  FabricTransport::Transfer* arrived(uint64_t ticket);
  // False if the receive is not open.
  bool close(const FabricTransport::Transfer& receive);
  void close_all();

 private:
  static constexpr uint32_t kIndexBits = 20;
  struct Opened {
    FabricTransport::Transfer* receive = nullptr;
    OfiMemoryRegion region;
    uint32_t ticket = 0;
  };
  Opened* find(uint64_t ticket);
  void end(Opened& opened);

  std::deque<Opened> opened_;
  std::deque<uint32_t> free_;  // indices, the longest free first
};

}  // namespace smp::net
