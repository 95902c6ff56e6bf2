#include "ofi_transport.h"

#include <fmt/format.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "libfabric.h"

namespace smp::shm {
namespace {

static_assert(sizeof(fi_context2) <= sizeof(Transport::Transfer::reserved));

// Best first. Not the providers that are slower than TCP or that only work inside a host.
constexpr const char* kProviders[] = {"efa", "verbs;ofi_rxm", "tcp", "net", "tcp;ofi_rxm"};

// An object of libfabric.
template <class Object>
class Closing {
 public:
  Closing() = default;
  ~Closing() { close(); }
  Closing(const Closing&) = delete;
  Closing& operator=(const Closing&) = delete;
  void close() {
    if (object_ != nullptr) fi_close(&std::exchange(object_, nullptr)->fid);
  }
  Object** slot() { return &object_; }
  Object* get() const { return object_; }
  Object* operator->() const { return object_; }

 private:
  Object* object_ = nullptr;
};

class Info {
 public:
  Info(const LibFabric& library, fi_info* info) : library_(library), info_(info) {}
  ~Info() {
    if (info_ != nullptr) library_.free(info_);
  }
  Info(const Info&) = delete;
  Info& operator=(const Info&) = delete;
  fi_info* operator->() const { return info_; }
  fi_info* get() const { return info_; }

 private:
  const LibFabric& library_;
  fi_info* info_;
};

class OfiTransport final : public Transport {
 public:
  OfiTransport(std::shared_ptr<LibFabric> library, fi_info* info)
      : library_(std::move(library)), info_(*library_, info) {
    check(library_->open(info_->fabric_attr, fabric_.slot()), "fi_fabric");
    check(fi_domain(fabric_.get(), info_.get(), domain_.slot(), nullptr), "fi_domain");
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_MSG;
    queue.size = kQueue;
    check(fi_cq_open(domain_.get(), &queue, queue_.slot(), nullptr), "fi_cq_open");
    fi_av_attr addresses{};
    check(fi_av_open(domain_.get(), &addresses, addresses_.slot(), nullptr), "fi_av_open");
    check(fi_endpoint(domain_.get(), info_.get(), endpoint_.slot(), nullptr), "fi_endpoint");
    check(fi_ep_bind(endpoint_.get(), &queue_->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind");
    check(fi_ep_bind(endpoint_.get(), &addresses_->fid, 0), "fi_ep_bind");
    check(fi_enable(endpoint_.get()), "fi_enable");
  }

  ~OfiTransport() override {
    endpoint_.close();  // nothing is written to anybody's memory from here on
  }

  std::string address() const override {
    std::string name(256, '\0');
    size_t bytes = name.size();
    check(fi_getname(&endpoint_->fid, name.data(), &bytes), "fi_getname");
    name.resize(bytes);
    return name;
  }

  void set_peers(const std::vector<std::string>& addresses) override {
    peers_.assign(addresses.size(), FI_ADDR_UNSPEC);
    for (size_t rank = 0; rank < addresses.size(); ++rank) {
      if (addresses[rank].empty()) continue;
      if (fi_av_insert(addresses_.get(), addresses[rank].data(), 1, &peers_[rank], 0, nullptr) != 1)
        throw std::runtime_error(fmt::format("libfabric refuses the address of rank {}", rank));
    }
  }

  std::unique_ptr<Memory> allocate(size_t bytes) override {
    return std::make_unique<Registered>(*this, bytes);
  }

  bool send(Transfer& transfer) override {
    const ssize_t done =
        fi_tsend(endpoint_.get(), transfer.data(), transfer.bytes, descriptor(transfer),
                 peers_[size_t(transfer.peer)], tag_of(transfer.box), transfer.reserved);
    return posted(transfer, done);
  }

  bool receive(Transfer& transfer) override {
    const ssize_t done =
        fi_trecv(endpoint_.get(), transfer.data(), transfer.bytes, descriptor(transfer),
                 FI_ADDR_UNSPEC, tag_of(transfer.box), 0, transfer.reserved);
    return posted(transfer, done);
  }

  void poll(std::vector<Transfer*>& complete) override {
    complete.insert(complete.end(), failed_.begin(), failed_.end());
    failed_.clear();
    std::array<fi_cq_msg_entry, 32> entries;
    const ssize_t n = fi_cq_read(queue_.get(), entries.data(), entries.size());
    if (n == -FI_EAVAIL) return take_error(complete);
    for (ssize_t i = 0; i < n; ++i) {
      Transfer* transfer = transfer_of(entries[size_t(i)].op_context);
      if (transfer->peer < 0) transfer->bytes = entries[size_t(i)].len;
      complete.push_back(transfer);
    }
  }

 private:
  static constexpr size_t kQueue = 8192;  // completions that may wait to be read

  class Registered final : public Memory {
   public:
    Registered(OfiTransport& transport, size_t bytes) : bytes_(bytes) {
      if ((transport.info_->domain_attr->mr_mode & FI_MR_LOCAL) == 0) return;
      transport.check(fi_mr_reg(transport.domain_.get(), bytes_.data(), bytes, FI_SEND | FI_RECV, 0,
                                transport.next_key_++, 0, region_.slot(), nullptr),
                      "fi_mr_reg");
    }
    std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
    void* descriptor() const {
      return region_.get() == nullptr ? nullptr : fi_mr_desc(region_.get());
    }

   private:
    std::vector<std::byte> bytes_;
    Closing<fid_mr> region_;
  };

  static uint64_t tag_of(Box box) { return box == Box::kData ? 1 : 2; }
  static void* descriptor(const Transfer& transfer) {
    return static_cast<Registered*>(transfer.memory)->descriptor();
  }
  static Transfer* transfer_of(void* context) {
    static_assert(offsetof(Transfer, reserved) == 0);
    return reinterpret_cast<Transfer*>(context);
  }

  void check(int error, const char* what) const {
    if (error != 0) throw std::runtime_error(fmt::format("{}: {}", what, library_->text_of(error)));
  }

  // An error is reported as a completion, like those that come later.
  bool posted(Transfer& transfer, ssize_t done) {
    if (done == -FI_EAGAIN) return false;
    if (done != 0) {
      transfer.error = library_->text_of(int(done));
      failed_.push_back(&transfer);
    }
    return true;
  }

  void take_error(std::vector<Transfer*>& complete) {
    fi_cq_err_entry entry{};
    if (fi_cq_readerr(queue_.get(), &entry, 0) != 1 || entry.op_context == nullptr) return;
    Transfer* transfer = transfer_of(entry.op_context);
    transfer->error = library_->text_of(entry.err);
    complete.push_back(transfer);
  }

  std::shared_ptr<LibFabric> library_;
  Info info_;
  Closing<fid_fabric> fabric_;
  Closing<fid_domain> domain_;
  Closing<fid_cq> queue_;
  Closing<fid_av> addresses_;
  Closing<fid_ep> endpoint_;
  std::vector<fi_addr_t> peers_;
  std::vector<Transfer*> failed_;
  uint64_t next_key_ = 1;
};

fi_info* hints_of(const LibFabric& library, const char* provider) {
  fi_info* hints = library.new_info();
  hints->caps = FI_MSG | FI_TAGGED;
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
  hints->fabric_attr->prov_name = strdup(provider);
  return hints;
}

// Names a provider's endpoint at this address, or says why there is none.
fi_info* find(const LibFabric& library, const char* provider, const std::string& address,
              std::string& why_not) {
  const Info hints(library, hints_of(library, provider));
  // EFA has addresses of its own: it is no part of an IP network.
  const bool ip = std::string(provider) != "efa";
  fi_info* found = nullptr;
  const int error =
      library.getinfo(ip ? address.c_str() : nullptr, ip ? FI_SOURCE : 0, hints.get(), &found);
  const Info all(library, found);
  if (error != 0) {
    why_not = library.text_of(error);
    return nullptr;
  }
  for (fi_info* info = found; info != nullptr; info = info->next)
    if (std::string(info->fabric_attr->prov_name) == provider) return library.copy(info);
  why_not = "not as reliable datagrams";
  return nullptr;
}

}  // namespace

OpenedTransport open_ofi_transport(const std::string& local_address, const std::string& pinned) {
  const auto library = std::make_shared<LibFabric>();
  std::vector<std::string> order(std::begin(kProviders), std::end(kProviders));
  if (!pinned.empty()) {
    if (std::find(order.begin(), order.end(), pinned) == order.end())
      throw std::runtime_error(
          fmt::format("SMP_FABRIC_PROVIDER={}: smp knows {}", pinned, fmt::join(order, ", ")));
    order = {pinned};
  }
  std::vector<std::string> refusals;
  for (const std::string& provider : order) {
    std::string why_not;
    try {
      if (fi_info* info = find(*library, provider.c_str(), local_address, why_not)) {
        OpenedTransport opened;
        opened.transport = std::make_unique<OfiTransport>(library, info);
        opened.provider = provider;
        opened.version = library->version_text();
        opened.why = fmt::format("{}", fmt::join(refusals, "; "));
        return opened;
      }
    } catch (const std::runtime_error& error) {
      why_not = error.what();
    }
    refusals.push_back(fmt::format("{}: {}", provider, why_not));
  }
  throw std::runtime_error(fmt::format("libfabric {} reaches no network at {} ({})",
                                       library->version_text(), local_address,
                                       fmt::join(refusals, "; ")));
}

}  // namespace smp::shm
