#include "ofi_transport.h"

#include <fmt/format.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_tagged.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

#include "descriptor.h"
#include "libfabric.h"
#include "nearest_card.h"

namespace smp::shm {
namespace {

static_assert(sizeof(fi_context2) <= sizeof(Transport::Transfer::reserved));

// Best first. Not the providers that are slower than TCP or that only work inside a host.
constexpr const char* kProviders[] = {"efa", "verbs;ofi_rxm", "tcp", "net", "tcp;ofi_rxm"};
// Joins processes of one host, whose own path is faster: taken by its name alone, to try what runs
// between hosts on one machine.
constexpr const char* kInsideHost = "shm";

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
    queue.wait_obj = FI_WAIT_FD;
    const int error = fi_cq_open(domain_.get(), &queue, queue_.slot(), nullptr);
    if (error == -FI_ENOSYS || error == -FI_EOPNOTSUPP || error == -FI_EINVAL) {
      queue.wait_obj = FI_WAIT_NONE;  // it can only be polled, as EFA
      check(fi_cq_open(domain_.get(), &queue, queue_.slot(), nullptr), "fi_cq_open");
    } else {
      check(error, "fi_cq_open");
      watch_queue();
    }
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

  int where_to_sleep() override {
    if (!news_) return kNoDescriptor;
    epoll_event old;
    while (epoll_wait(news_.get(), &old, 1, 0) > 0) {
    }
    fid* queue = &queue_->fid;
    if (fi_trywait(fabric_.get(), &queue, 1) != FI_SUCCESS) return kPollAgain;
    read_queue(early_);
    return early_.empty() ? news_.get() : kPollAgain;
  }

  std::unique_ptr<Memory> allocate(size_t bytes) override {
    return std::make_unique<Registered>(*this, bytes);
  }

  bool takes_any_memory() const override {
    return (info_->domain_attr->mr_mode & FI_MR_LOCAL) == 0 && info_->tx_attr->iov_limit >= 2 &&
           info_->rx_attr->iov_limit >= 2;
  }

  bool send(Transfer& transfer) override {
    if (endpoint_.get() == nullptr) return posted(transfer, -FI_ESHUTDOWN);
    const fi_addr_t peer = peers_[size_t(transfer.peer)];
    Pieces pieces(transfer);
    return posted(transfer, fi_tsendv(endpoint_.get(), pieces.memory, pieces.descriptors,
                                      pieces.count, peer, tag_of(transfer), transfer.reserved));
  }

  bool receive(Transfer& transfer) override {
    if (endpoint_.get() == nullptr) return posted(transfer, -FI_ESHUTDOWN);
    Pieces pieces(transfer);
    return posted(transfer,
                  fi_trecvv(endpoint_.get(), pieces.memory, pieces.descriptors, pieces.count,
                            FI_ADDR_UNSPEC, tag_of(transfer), 0, transfer.reserved));
  }

  // What was complete already stays so; a provider that cannot cancel lets it go on.
  void cancel(Transfer& receive) override {
    if (endpoint_.get() != nullptr) fi_cancel(&endpoint_->fid, receive.reserved);
  }

  void close() override { endpoint_.close(); }

  void poll(std::vector<Transfer*>& complete) override {
    complete.insert(complete.end(), early_.begin(), early_.end());
    early_.clear();
    read_queue(complete);
  }

 private:
  static constexpr size_t kQueue = 8192;  // completions that may wait to be read

  // Only what is new counts: TCP before libfabric 1.20 signals a completion and never takes the
  // signal back.
  void watch_queue() {
    int descriptor = -1;
    check(fi_control(&queue_->fid, FI_GETWAIT, &descriptor), "FI_GETWAIT");
    news_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    if (!news_ || epoll_ctl(news_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0)
      throw std::system_error(errno, std::generic_category(), "epoll");
  }

  void read_queue(std::vector<Transfer*>& complete) {
    std::array<fi_cq_msg_entry, 32> entries;
    const ssize_t n = fi_cq_read(queue_.get(), entries.data(), entries.size());
    if (n == -FI_EAVAIL) return take_error(complete);
    for (ssize_t i = 0; i < n; ++i) {
      Transfer* transfer = transfer_of(entries[size_t(i)].op_context);
      if (transfer->peer < 0) transfer->bytes = entries[size_t(i)].len;
      complete.push_back(transfer);
    }
  }

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

  // Their tags have the first bit, which the others have not.
  static uint64_t tag_of(const Transfer& transfer) {
    if (transfer.box == Box::kStraight) return transfer.tag | uint64_t{1} << 63;
    return transfer.box == Box::kData ? 1 : 2;
  }
  static void* descriptor(const Transfer& transfer) {
    return static_cast<Registered*>(transfer.memory)->descriptor();
  }
  struct Pieces {
    explicit Pieces(const Transfer& transfer) {
      if (transfer.bytes > 0) add({transfer.data(), transfer.bytes}, descriptor(transfer));
      if (transfer.rest_bytes > 0) add({transfer.rest, transfer.rest_bytes}, nullptr);
    }
    void add(iovec piece, void* descriptor) {
      memory[count] = piece;
      descriptors[count++] = descriptor;
    }
    size_t count = 0;
    iovec memory[2];
    void* descriptors[2];
  };
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
      early_.push_back(&transfer);
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
  std::vector<Transfer*> early_;  // complete, to be said at the next poll
  Descriptor news_;  // can be read when there may be something new in the queue, if it can tell
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

// Others have addresses of their own: they are no part of an IP network.
bool is_of_ip(const std::string& provider) { return provider != "efa" && provider != kInsideHost; }

// A card may come several times, best way first.
bool is_new(const std::vector<fi_info*>& cards, const fi_info* info) {
  return std::none_of(cards.begin(), cards.end(), [&](const fi_info* card) {
    return std::string(card->domain_attr->name) == info->domain_attr->name;
  });
}

std::optional<int> node_of(const fi_info& info) {
  const fi_bus_attr* const bus = info.nic != nullptr ? info.nic->bus_attr : nullptr;
  if (bus == nullptr || bus->bus_type != FI_BUS_PCI) return std::nullopt;
  const fi_pci_attr& pci = bus->attr.pci;
  return numa_node_of_device(fmt::format("{:04x}:{:02x}:{:02x}.{:x}", pci.domain_id, pci.bus_id,
                                         pci.device_id, pci.function_id));
}

// Names a provider's endpoint at this address, or says why there is none.
fi_info* find(const LibFabric& library, const char* provider, const std::string& address,
              int local_rank, std::string& card, std::string& why_not) {
  const Info hints(library, hints_of(library, provider));
  const bool ip = is_of_ip(provider);
  fi_info* found = nullptr;
  const int error =
      library.getinfo(ip ? address.c_str() : nullptr, ip ? FI_SOURCE : 0, hints.get(), &found);
  const Info all(library, found);
  if (error != 0) {
    why_not = library.text_of(error);
    return nullptr;
  }
  std::vector<fi_info*> cards;
  for (fi_info* info = found; info != nullptr; info = info->next)
    if (std::string(info->fabric_attr->prov_name) == provider && is_new(cards, info))
      cards.push_back(info);
  if (cards.empty()) {
    why_not = "not as reliable datagrams";
    return nullptr;
  }
  if (ip || cards.size() == 1) return library.copy(cards.front());  // the address says which
  std::vector<std::optional<int>> nodes;
  for (const fi_info* info : cards) nodes.push_back(node_of(*info));
  fi_info* const nearest = cards[nearest_card(nodes, own_numa_node(), local_rank)];
  card = nearest->domain_attr->name;
  return library.copy(nearest);
}

}  // namespace

OpenedTransport open_ofi_transport(const std::string& local_address, const std::string& pinned,
                                   int local_rank) {
  const auto library = std::make_shared<LibFabric>();
  std::vector<std::string> order(std::begin(kProviders), std::end(kProviders));
  if (!pinned.empty()) {
    if (std::find(order.begin(), order.end(), pinned) == order.end() && pinned != kInsideHost)
      throw std::runtime_error(fmt::format("SMP_FABRIC_PROVIDER={}: smp knows {}, {}", pinned,
                                           fmt::join(order, ", "), kInsideHost));
    order = {pinned};
  }
  std::vector<std::string> refusals;
  for (const std::string& provider : order) {
    std::string card, why_not;
    try {
      if (fi_info* info =
              find(*library, provider.c_str(), local_address, local_rank, card, why_not)) {
        OpenedTransport opened;
        opened.card = card;
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
