#include "net/ofi_remote_buffers.h"

#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <utility>

namespace smp::net {

int OfiMemoryRegion::open(fid_domain* domain, fid_ep* endpoint, const fi_info& info,
                          std::byte* memory, size_t bytes, uint64_t access, uint64_t key) {
  const fi_domain_attr& attributes = *info.domain_attr;
  if (attributes.mr_key_size < sizeof(key)) key &= (uint64_t{1} << 8 * attributes.mr_key_size) - 1;
  int error = fi_mr_reg(domain, memory, bytes, access, 0, key, 0, region_.slot(), nullptr);
  if (error == 0 && (attributes.mr_mode & FI_MR_ENDPOINT) != 0) {
    error = fi_mr_bind(region_.get(), &endpoint->fid, 0);
    if (error == 0) error = fi_mr_enable(region_.get());
    if (error != 0) region_.close();
  }
  begin_ = memory;
  has_addresses_ = (attributes.mr_mode & FI_MR_VIRT_ADDR) != 0;
  return error;
}

FabricTransport::RemoteBuffer OfiMemoryRegion::place_of(const std::byte* memory) const {
  FabricTransport::RemoteBuffer place;
  place.address = has_addresses_ ? reinterpret_cast<uint64_t>(memory) : uint64_t(memory - begin_);
  place.key = fi_mr_key(region_.get());
  return place;
}

int OfiRemoteBuffers::open(FabricTransport::Transfer& receive, const OfiMemoryRegion* region,
                           fid_domain* domain, fid_ep* endpoint, const fi_info& info,
                           uint64_t key) {
  if (free_.empty()) {
    if (opened_.size() >> kIndexBits != 0) return -FI_ENOMEM;
    free_.push_back(uint32_t(opened_.size()));
    opened_.emplace_back().ticket = free_.back();
  }
  Opened& opened = opened_[free_.front()];
  if (region == nullptr) {
    const int error = opened.region.open(domain, endpoint, info, receive.rest, receive.rest_bytes,
                                         FI_REMOTE_WRITE, key);
    if (error != 0) return error;
    region = &opened.region;
  }
  free_.pop_front();
  opened.receive = &receive;
  receive.remote_buffer = region->place_of(receive.rest);
  receive.remote_buffer.ticket = opened.ticket;
  return 0;
}

OfiRemoteBuffers::Opened* OfiRemoteBuffers::find(uint64_t ticket) {
  const size_t index = ticket & ((uint32_t{1} << kIndexBits) - 1);
  if (index >= opened_.size()) return nullptr;
  Opened& opened = opened_[index];
  return opened.receive != nullptr && opened.ticket == ticket ? &opened : nullptr;
}

void OfiRemoteBuffers::end(Opened& opened) {
  opened.region.close();
  opened.receive = nullptr;
  free_.push_back(opened.ticket & ((uint32_t{1} << kIndexBits) - 1));
  opened.ticket += uint32_t{1} << kIndexBits;
}

FabricTransport::Transfer* OfiRemoteBuffers::arrived(uint64_t ticket) {
  Opened* const opened = find(ticket);
  if (opened == nullptr) return nullptr;
  FabricTransport::Transfer* const receive = opened->receive;
  end(*opened);
  return receive;
}

bool OfiRemoteBuffers::close(const FabricTransport::Transfer& receive) {
  Opened* const opened = find(receive.remote_buffer.ticket);
  if (opened == nullptr || opened->receive != &receive) return false;
  end(*opened);
  return true;
}

void OfiRemoteBuffers::close_all() {
  for (Opened& opened : opened_)
    if (opened.receive != nullptr) end(opened);
}

}  // namespace smp::net
