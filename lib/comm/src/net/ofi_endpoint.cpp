#include "net/ofi_endpoint.h"

#include <fmt/format.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <rdma/fi_tagged.h>
#include <sys/epoll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <random>
#include <set>
#include <span>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "net/ofi_handles.h"
#include "net/ofi_remote_buffers.h"
#include "net/registration.h"
#include "smp/plan/system/file_descriptor.h"

namespace smp::net {
namespace {

static_assert(sizeof(fi_context2) <= sizeof(FabricTransport::Transfer::reserved));

class OfiTransport final : public FabricTransport {
 public:
  OfiTransport(std::shared_ptr<LibFabric> library, fi_info* info, bool writes)
      : library_(std::move(library)), info_(*library_, info), writes_(writes) {
    check(library_->open(info_->fabric_attr, fabric_.slot()), "fi_fabric");
    check(fi_domain(fabric_.get(), info_.get(), domain_.slot(), nullptr), "fi_domain");
    fi_cq_attr queue{};
    queue.format = FI_CQ_FORMAT_DATA;
    queue.size = kQueue;
    queue.wait_obj = FI_WAIT_FD;
    const int error = fi_cq_open(domain_.get(), &queue, queue_.slot(), nullptr);
    if (error == -FI_ENOSYS || error == -FI_EOPNOTSUPP || error == -FI_EINVAL) {
      queue.wait_obj = FI_WAIT_NONE;  // the queue can only be polled, as with EFA
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
    close();  // peers cannot write to this rank's memory after this
    for (Registered* const memory : registered_) memory->forget();
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
        throw std::runtime_error(
            fmt::format("libfabric does not accept the address of rank {}", rank));
    }
  }

  int wait_descriptor() override {
    if (!news_) return waiting::kNoDescriptor;
    epoll_event old;
    while (epoll_wait(news_.number(), &old, 1, 0) > 0) {
    }
    fid* queue = &queue_->fid;
    // tcp;ofi_rxm would use freed memory of a closed endpoint, which receives nothing anyway.
    if (endpoint_.get() != nullptr && fi_trywait(fabric_.get(), &queue, 1) != FI_SUCCESS)
      return waiting::kPollAgain;
    read_queue(early_);
    return early_.empty() ? news_.number() : waiting::kPollAgain;
  }

  std::unique_ptr<Memory> allocate(size_t bytes) override {
    return std::make_unique<Registered>(*this, bytes);
  }

  std::unique_ptr<Memory> adopt(std::byte* begin, size_t bytes) override {
    if (!goes_on_elsewhere() || endpoint_.get() == nullptr) return nullptr;
    return std::make_unique<Registered>(*this, begin, bytes);
  }

  bool takes_any_memory() const override { return !wants_registered() && goes_on_elsewhere(); }

  size_t short_bytes() const override { return is_rxm() ? kRxmBufferBytes : SIZE_MAX; }

  bool writes() const override { return writes_; }

  void expose(Transfer& receive, uint64_t secret) override {
    if (!writes_) {
      receive.remote_buffer.key = secret;
      return;
    }
    const auto* const memory = static_cast<Registered*>(receive.rest_memory);
    const bool is_registered = memory != nullptr && memory->region().is_open();
    const int error = endpoint_.get() == nullptr
                          ? -FI_ESHUTDOWN
                          : places_.open(receive, is_registered ? &memory->region() : nullptr,
                                         domain_.get(), endpoint_.get(), *info_.get(), secret);
    if (error != 0) receive.error = library_->text_of(error);
  }

  bool send(Transfer& transfer) override {
    if (endpoint_.get() == nullptr) return posted(transfer, -FI_ESHUTDOWN);
    const fi_addr_t peer = peers_[size_t(transfer.peer)];
    Pieces pieces(transfer);
    if (writes_ && transfer.message_class == MessageClass::kZeroCopy)
      return posted(transfer, fi_writedata(endpoint_.get(), pieces.memory[0].iov_base,
                                           pieces.memory[0].iov_len, pieces.descriptors[0],
                                           transfer.remote_buffer.ticket, peer,
                                           transfer.remote_buffer.address,
                                           transfer.remote_buffer.key, transfer.reserved));
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

  // A complete transfer stays complete; a provider that cannot cancel lets the transfer continue.
  void cancel(Transfer& receive) override {
    if (endpoint_.get() == nullptr) return;
    if (!writes_ || receive.message_class != MessageClass::kZeroCopy) {
      fi_cancel(&endpoint_->fid, receive.reserved);
    } else if (places_.close(receive)) {
      posted(receive, -FI_ECANCELED);
    }
  }

  void close() override {
    if (is_rxm() && endpoint_.get() != nullptr) settle();
    places_.close_all();  // the regions may be bound to the endpoint
    for (Registered* const memory : registered_) memory->end();
    endpoint_.close();
  }

  void poll(std::vector<Transfer*>& complete) override {
    complete.insert(complete.end(), early_.begin(), early_.end());
    early_.clear();
    read_queue(complete);
  }

 private:
  static constexpr size_t kRxmBufferBytes = 16 << 10;  // FI_OFI_RXM_BUFFER_SIZE of all versions
  static constexpr size_t kQueue = 8192;               // most unread completions
  static constexpr int kQuietReads = 4, kLastReads = 1000;

  bool is_rxm() const {
    return std::string_view(info_->fabric_attr->prov_name).find("ofi_rxm") != std::string::npos;
  }
  bool wants_registered() const { return (info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
  // Messages with memory in two places.
  bool goes_on_elsewhere() const {
    return info_->tx_attr->iov_limit >= 2 && info_->rx_attr->iov_limit >= 2;
  }

  // Only new events count: TCP before libfabric 1.20 signals a completion and never takes the
  // signal back.
  void watch_queue() {
    int descriptor = -1;
    check(fi_control(&queue_->fid, FI_GETWAIT, &descriptor), "FI_GETWAIT");
    news_ = system::FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    if (!news_ || epoll_ctl(news_.number(), EPOLL_CTL_ADD, descriptor, &event) != 0)
      throw std::system_error(errno, std::generic_category(), "epoll");
  }

  // Reads and discards received messages. When a connection is closed, ofi_rxm answers some unread
  // messages through memory that it has just freed (1.17; for 2.4 ofiwg/libfabric issue 11828).
  // Some messages are read by the provider and are not seen here.
  void settle() {
    std::vector<Transfer*> came;
    int quiet = 0;
    for (int reads = 0; reads < kLastReads && quiet < kQuietReads; ++reads) {
      came.clear();
      read_queue(came);
      quiet = came.empty() ? quiet + 1 : 0;
    }
  }

  // Reads all completions: remaining ones would not wake a thread that sleeps at the descriptor.
  void read_queue(std::vector<Transfer*>& complete) {
    std::array<fi_cq_data_entry, 32> entries;
    for (;;) {
      const ssize_t n = fi_cq_read(queue_.get(), entries.data(), entries.size());
      if (n == -FI_EAVAIL && take_error(complete)) continue;
      take_entries(std::span(entries.data(), size_t(std::max<ssize_t>(n, 0))), complete);
      if (n < ssize_t(entries.size())) return;
    }
  }

  void take_entries(std::span<const fi_cq_data_entry> entries, std::vector<Transfer*>& complete) {
    for (const fi_cq_data_entry& entry : entries) {
      if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
        if (Transfer* const written = places_.arrived(entry.data)) {
          written->bytes = written->rest_bytes;
          complete.push_back(written);
        }
        continue;
      }
      Transfer* transfer = transfer_of(entry.op_context);
      if (transfer->peer < 0) transfer->bytes = entry.len;
      complete.push_back(transfer);
    }
  }

  class Registered final : public Memory {
   public:
    Registered(OfiTransport& transport, size_t bytes) : own_(bytes), begin_(own_.data()) {
      open(transport, bytes);
    }
    Registered(OfiTransport& transport, std::byte* begin, size_t bytes) : begin_(begin) {
      open(transport, bytes);
    }
    ~Registered() override {
      if (transport_ != nullptr) transport_->registered_.erase(this);
    }
    Registered(const Registered&) = delete;
    Registered& operator=(const Registered&) = delete;
    std::byte* data() const override { return begin_; }
    const OfiMemoryRegion& region() const { return region_; }
    void* descriptor() const { return region_.descriptor(); }
    void end() { region_.close(); }
    void forget() { transport_ = nullptr; }

   private:
    void open(OfiTransport& transport, size_t bytes) {
      if (!transport.wants_registered()) return;
      const uint64_t access =
          FI_SEND | FI_RECV | (transport.writes_ ? FI_WRITE | FI_REMOTE_WRITE : 0);
      const uint64_t key = uint64_t{transport.random_()} << 32 | transport.random_();
      const int error = region_.open(transport.domain_.get(), transport.endpoint_.get(),
                                     *transport.info_.get(), begin_, bytes, access, key);
      if (error != 0)
        throw std::runtime_error(registration_refused(transport.info_->fabric_attr->prov_name,
                                                      bytes, transport.library_->text_of(error)));
      transport.registered_.insert(this);
      transport_ = &transport;
    }

    std::vector<std::byte> own_;
    std::byte* const begin_;
    OfiTransport* transport_ = nullptr;  // the transport that lists this memory
    OfiMemoryRegion region_;
  };

  // Their tags have the first bit, which the others have not.
  static uint64_t tag_of(const Transfer& transfer) {
    if (transfer.message_class == MessageClass::kZeroCopy)
      return transfer.remote_buffer.key | uint64_t{1} << 63;
    return transfer.message_class == MessageClass::kData ? 1 : 2;
  }
  static void* descriptor(const Memory* memory) {
    return memory == nullptr ? nullptr : static_cast<const Registered*>(memory)->descriptor();
  }
  struct Pieces {
    explicit Pieces(const Transfer& transfer) {
      if (transfer.bytes > 0) add({transfer.data(), transfer.bytes}, descriptor(transfer.memory));
      if (transfer.rest_bytes > 0)
        add({transfer.rest, transfer.rest_bytes}, descriptor(transfer.rest_memory));
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

  // An error is reported as a completion, like later errors.
  bool posted(Transfer& transfer, ssize_t done) {
    if (done == -FI_EAGAIN) return false;
    if (done != 0) {
      transfer.error = library_->text_of(int(done));
      early_.push_back(&transfer);
    }
    return true;
  }

  // Whether there was an error. An error without a context belongs to none of our transfers.
  bool take_error(std::vector<Transfer*>& complete) {
    fi_cq_err_entry entry{};
    if (fi_cq_readerr(queue_.get(), &entry, 0) != 1) return false;
    if (entry.op_context == nullptr) return true;
    Transfer* transfer = transfer_of(entry.op_context);
    transfer->error = library_->text_of(entry.err);
    complete.push_back(transfer);
    return true;
  }

  std::shared_ptr<LibFabric> library_;
  FabricInfo info_;
  FidHandle<fid_fabric> fabric_;
  FidHandle<fid_domain> domain_;
  FidHandle<fid_cq> queue_;
  FidHandle<fid_av> addresses_;
  FidHandle<fid_ep> endpoint_;
  std::vector<fi_addr_t> peers_;
  std::vector<Transfer*> early_;  // complete transfers to report at the next poll
  system::FileDescriptor
      news_;  // can be read when there may be something new in the queue, if it can tell
  const bool writes_;
  OfiRemoteBuffers places_;
  std::random_device random_;
  std::set<Registered*> registered_;  // registered memory
};

}  // namespace

std::unique_ptr<FabricTransport> open_ofi_endpoint(std::shared_ptr<LibFabric> library,
                                                   fi_info* info, bool writes) {
  return std::make_unique<OfiTransport>(std::move(library), info, writes);
}

}  // namespace smp::net
