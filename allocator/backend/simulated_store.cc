#include "backend/simulated_store.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>

#include "backend/free_ranges.h"

namespace gpupool::internal {
namespace {

constexpr std::uint64_t kTiB = std::uint64_t{1} << 40;
// Above anything that a test would make up by hand.
constexpr std::uint64_t kFirstAddress = 16 * kTiB;
constexpr std::uint64_t kAddressesPerDevice = 14 * kTiB;
constexpr std::uint64_t kPlainAddresses = 2 * kTiB;

/// The addresses of one device: a range that no other has while it lives, as in one process on real
/// cards, so that a pointer of one pool is no other's. The first device of an ordinal (modulo 8)
/// has always the same; more than there are ranges at once share the last.
class AddressRange {
 public:
  explicit AddressRange(int ordinal) {
    index_ = static_cast<std::size_t>(ordinal) % kOwn;
    for (std::size_t next = kOwn; !take(index_) && index_ + 1 < kRanges; ++next) index_ = next;
  }
  ~AddressRange() {
    if (index_ + 1 < kRanges) is_taken_[index_].store(false);
  }
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;
  std::uint64_t begin() const noexcept { return kFirstAddress + index_ * kAddressesPerDevice; }
  std::uint64_t end() const noexcept { return begin() + kAddressesPerDevice; }

 private:
  // An ordinal's own lie where a card's do, below the end of a 47-bit address space. Those above
  // are numbers like them, and exact where somebody keeps them in a double.
  static constexpr std::size_t kOwn = 8;
  static constexpr std::size_t kRanges = 512;
  static bool take(std::size_t index) { return !is_taken_[index].exchange(true); }
  static inline std::array<std::atomic<bool>, kRanges> is_taken_{};
  std::size_t index_ = 0;
};

class AddressOnlyStore final : public SimulatedStore {
 public:
  explicit AddressOnlyStore(int ordinal)
      : range_(ordinal),
        reservations_(range_.begin(), range_.end() - kPlainAddresses),
        plain_(range_.end() - kPlainAddresses, range_.end()) {}

  std::optional<DeviceAddress> reserve(std::uint64_t bytes, std::uint64_t alignment) override {
    return reservations_.take(bytes, alignment);
  }
  void free_reservation(DeviceAddress address, std::uint64_t bytes) override {
    reservations_.give_back(address, bytes);
  }
  std::optional<std::uint64_t> create(std::uint64_t) override { return 0; }
  void destroy(std::uint64_t, std::uint64_t) override {}
  bool map(DeviceAddress, std::uint64_t, std::uint64_t) override { return true; }
  bool set_access(DeviceAddress, std::uint64_t) override { return true; }
  bool unmap(DeviceAddress, std::uint64_t) override { return true; }
  std::optional<DeviceAddress> allocate(std::uint64_t bytes, std::uint64_t alignment) override {
    return plain_.take(bytes, alignment);
  }
  void deallocate(DeviceAddress address, std::uint64_t bytes) override {
    plain_.give_back(address, bytes);
  }

 private:
  AddressRange range_;
  FreeRanges reservations_;
  FreeRanges plain_;
};

void* as_pointer(DeviceAddress address) { return reinterpret_cast<void*>(address); }

/// Host addresses at a multiple of `alignment`, by mapping more and trimming both ends.
std::optional<DeviceAddress> map_aligned(std::uint64_t bytes, std::uint64_t alignment,
                                         int protection) {
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
  if (bytes > ~std::uint64_t{0} - alignment) return std::nullopt;
  void* mapped = mmap(nullptr, bytes + alignment, protection, kFlags, -1, 0);
  if (mapped == MAP_FAILED) return std::nullopt;
  const auto begin = reinterpret_cast<std::uint64_t>(mapped);
  const std::uint64_t aligned = (begin + alignment - 1) & ~(alignment - 1);
  if (aligned > begin) munmap(mapped, aligned - begin);
  munmap(as_pointer(aligned + bytes), begin + alignment - aligned);
  return aligned;
}

// One file for all handles, and not one each: 16 GiB in handles of 2 MiB would be 8 192 open
// files, more than a process may have by default.
class MemfdStore final : public SimulatedStore {
 public:
  // Offsets are of far more bytes than the capacity, so that handles of any size find a place
  // whatever the order they come and go in; the file is sparse.
  MemfdStore(std::uint64_t capacity_bytes, std::uint64_t granularity_bytes)
      : granularity_bytes_(granularity_bytes), offsets_(0, 16 * capacity_bytes) {
    fd_ = memfd_create("gpupool-simulated-device", MFD_CLOEXEC);
    if (fd_ >= 0 && ftruncate(fd_, static_cast<off_t>(16 * capacity_bytes)) != 0) {
      close(fd_);
      fd_ = -1;
    }
  }
  ~MemfdStore() override {
    if (fd_ >= 0) close(fd_);
  }

  std::optional<DeviceAddress> reserve(std::uint64_t bytes, std::uint64_t alignment) override {
    return map_aligned(bytes, alignment, PROT_NONE);
  }
  void free_reservation(DeviceAddress address, std::uint64_t bytes) override {
    munmap(as_pointer(address), bytes);
  }
  std::optional<std::uint64_t> create(std::uint64_t bytes) override {
    if (fd_ < 0) return std::nullopt;
    return offsets_.take(bytes, granularity_bytes_);
  }
  void destroy(std::uint64_t offset, std::uint64_t bytes) override {
    // Where the host cannot punch a hole its memory stays in use; the next owner sees old bytes,
    // as it would on a card.
    (void)fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                    static_cast<off_t>(bytes));
    offsets_.give_back(offset, bytes);
  }
  bool map(DeviceAddress address, std::uint64_t bytes, std::uint64_t offset) override {
    return mmap(as_pointer(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, fd_,
                static_cast<off_t>(offset)) != MAP_FAILED;
  }
  bool set_access(DeviceAddress address, std::uint64_t bytes) override {
    return mprotect(as_pointer(address), bytes, PROT_READ | PROT_WRITE) == 0;
  }
  bool unmap(DeviceAddress address, std::uint64_t bytes) override {
    return mmap(as_pointer(address), bytes, PROT_NONE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  std::optional<DeviceAddress> allocate(std::uint64_t bytes, std::uint64_t alignment) override {
    return map_aligned(bytes_of_host_pages(bytes), host_alignment(alignment),
                       PROT_READ | PROT_WRITE);
  }
  void deallocate(DeviceAddress address, std::uint64_t bytes) override {
    munmap(as_pointer(address), bytes_of_host_pages(bytes));
  }

 private:
  static std::uint64_t host_page_bytes() {
    static const auto bytes = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    return bytes;
  }
  static std::uint64_t bytes_of_host_pages(std::uint64_t bytes) {
    return (bytes + host_page_bytes() - 1) & ~(host_page_bytes() - 1);
  }
  static std::uint64_t host_alignment(std::uint64_t alignment) {
    return alignment > host_page_bytes() ? alignment : host_page_bytes();
  }

  std::uint64_t granularity_bytes_;
  FreeRanges offsets_;
  int fd_ = -1;
};

}  // namespace

std::unique_ptr<SimulatedStore> make_address_only_store(int ordinal) {
  return std::make_unique<AddressOnlyStore>(ordinal);
}

std::unique_ptr<SimulatedStore> make_memfd_store(std::uint64_t capacity_bytes,
                                                 std::uint64_t granularity_bytes) {
  return std::make_unique<MemfdStore>(capacity_bytes, granularity_bytes);
}

}  // namespace gpupool::internal
