#include "tests/gpu/replay/alias_probe.h"

#include <cuda_runtime_api.h>

#include <memory>
#include <utility>

#include "gpupool/cuda_backend.h"
#include "tests/gpu/kernels.h"

namespace gpupool::gpu_tests {
namespace {

constexpr std::uint64_t kBytes = 64 << 10;  // fits in a processor's own cache
constexpr std::uint64_t kLimitNs = 2'000'000;
constexpr std::uint32_t kFirstToken = 1000;

/// Where a reader is, seen from the writer.
enum class Grid : std::uint8_t {
  next,   // launched behind it, in its stream
  other,  // launched before it, on another stream, and told by a flag
  same,   // the writer itself
};

struct Reader {
  const char* text;
  Grid grid;
  Launch launch;
  Ahead ahead;
};

// The last shows whether this card has incoherent aliases that such a probe can see.
constexpr Reader kReaders[] = {
    {"starts after the write", Grid::next, Launch::ordinary, Ahead::nothing},
    {"dependent launch", Grid::next, Launch::dependent, Ahead::is_there},
    {"dependent launch that has read the old words", Grid::next, Launch::dependent,
     Ahead::has_read},
    {"resident, waits for a flag", Grid::other, Launch::ordinary, Ahead::is_there},
    {"resident that has read the old words", Grid::other, Launch::ordinary, Ahead::has_read},
    {"the writing grid, has read the old words", Grid::same, Launch::ordinary, Ahead::has_read},
};

/// A page that is mapped twice, its streams and flags. Everything goes back at its end.
class Bench {
 public:
  static Result<std::unique_ptr<Bench>, Status> open();
  ~Bench();
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  bool has_dependent_launch() const { return kernels_->has_dependent_launch(); }
  Result<AliasCase, Status> run(const Reader& reader, bool is_alias, std::uint64_t rounds);

 private:
  Bench() = default;
  Result<void, Status> map();
  Result<void, Status> round(const Reader& reader, DeviceAddress read_at, std::uint32_t seed);
  DeviceAddress flags() const { return reinterpret_cast<DeviceAddress>(flags_); }

  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Kernels> kernels_;
  cudaStream_t streams_[2] = {};
  void* flags_ = nullptr;
  PhysicalHandle page_;
  DeviceAddress range_ = 0;
  std::size_t page_bytes_ = 0;
  int mapped_ = 0;  // of the two
  std::uint32_t token_ = kFirstToken;
};

Result<std::unique_ptr<Bench>, Status> Bench::open() {
  std::unique_ptr<Bench> bench(new Bench());
  auto backend = open_cuda_backend(0);
  if (!backend.ok()) return backend.error();
  bench->backend_ = std::move(backend).value();
  if (const auto set = check_cuda(cudaSetDevice(0), "no CUDA device"); !set.ok())
    return set.error();
  auto kernels = Kernels::create();
  if (!kernels.ok()) return kernels.error();
  bench->kernels_ = std::move(kernels).value();
  for (cudaStream_t& stream : bench->streams_) {
    const auto made = check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                                 "cannot make a stream");
    if (!made.ok()) return made.error();
  }
  const auto given = check_cuda(cudaMalloc(&bench->flags_, 16), "no memory for flags");
  if (!given.ok()) return given.error();
  if (const auto mapped = bench->map(); !mapped.ok()) return mapped.error();
  return bench;
}

Result<void, Status> Bench::map() {
  page_bytes_ = backend_->granularity_bytes();
  const auto range = backend_->reserve_address(2 * page_bytes_, page_bytes_);
  if (!range.ok()) return Status{range.error(), "cannot reserve addresses"};
  range_ = range.value();
  const auto page = backend_->create(page_bytes_);
  if (!page.ok()) return Status{page.error(), "cannot create a page"};
  page_ = page.value();
  for (; mapped_ < 2; ++mapped_) {
    const DeviceAddress at = range_ + static_cast<std::uint64_t>(mapped_) * page_bytes_;
    const auto mapped = backend_->map(at, page_bytes_, page_);
    if (!mapped.ok()) return Status{mapped.error(), "cannot map a page twice"};
  }
  const auto access = backend_->set_access(range_, 2 * page_bytes_);
  if (!access.ok()) return Status{access.error(), "cannot make a page accessible"};
  return {};
}

Bench::~Bench() {
  // The device is idle and all of this is ours; an error here would be an earlier one.
  static_cast<void>(cudaDeviceSynchronize());
  for (int i = 0; i < mapped_; ++i) {
    static_cast<void>(
        backend_->unmap(range_ + static_cast<std::uint64_t>(i) * page_bytes_, page_bytes_));
  }
  if (page_.value != 0) static_cast<void>(backend_->release(page_));
  if (range_ != 0) static_cast<void>(backend_->free_address(range_, 2 * page_bytes_));
  static_cast<void>(cudaFree(flags_));
  for (cudaStream_t stream : streams_) {
    if (stream != nullptr) static_cast<void>(cudaStreamDestroy(stream));
  }
}

Result<void, Status> Bench::round(const Reader& reader, DeviceAddress read_at, std::uint32_t seed) {
  const Pattern written{range_, kBytes, seed};
  const Pattern read{read_at, kBytes, seed};
  Meeting meeting;
  meeting.flags = flags();
  meeting.token = ++token_;
  meeting.ahead = reader.ahead;
  if (reader.ahead != Ahead::nothing) meeting.writer_limit_ns = kLimitNs;
  auto done = Result<void, Status>();
  if (reader.grid == Grid::same) {
    done = kernels_->write_and_read(streams_[0], written, read_at, meeting);
  } else if (reader.grid == Grid::other) {
    // The flag is given through memory that has one address alone.
    meeting.reader_limit_ns = 2 * kLimitNs;
    done = kernels_->read_met(streams_[1], read, meeting, reader.launch);
    if (done.ok()) done = kernels_->write_met(streams_[0], written, meeting);
  } else {
    done = kernels_->write_met(streams_[0], written, meeting);
    if (done.ok()) done = kernels_->read_met(streams_[0], read, meeting, reader.launch);
  }
  if (done.ok()) done = check_cuda(cudaDeviceSynchronize(), "the device failed");
  return done;
}

Result<AliasCase, Status> Bench::run(const Reader& reader, bool is_alias, std::uint64_t rounds) {
  auto done = kernels_->clear_mismatches();
  if (done.ok()) done = check_cuda(cudaMemset(flags_, 0, 16), "cannot clear flags");
  for (std::uint64_t i = 0; done.ok() && i < rounds; ++i) {
    done = round(reader, is_alias ? range_ + page_bytes_ : range_, seed_of(token_));
  }
  if (!done.ok()) return done.error();
  const auto mismatches = kernels_->mismatches();
  if (!mismatches.ok()) return mismatches.error();
  std::uint32_t flags[4] = {};
  done = check_cuda(cudaMemcpy(flags, flags_, sizeof flags, cudaMemcpyDeviceToHost),
                    "cannot read flags");
  if (!done.ok()) return done.error();
  AliasCase result;
  result.reader = reader.text;
  result.is_alias = is_alias;
  result.rounds = rounds;
  result.rounds_already_there = flags[2];
  result.words = rounds * (kBytes / sizeof(std::uint32_t));
  result.old_words = mismatches.value().words;
  return result;
}

}  // namespace

Result<std::vector<AliasCase>, Status> probe_aliases(std::uint64_t rounds) {
  auto bench = Bench::open();
  if (!bench.ok()) return bench.error();
  std::vector<AliasCase> cases;
  if (!bench.value()->has_dependent_launch()) return cases;
  for (const Reader& reader : kReaders) {
    for (const bool is_alias : {false, true}) {
      auto measured = bench.value()->run(reader, is_alias, rounds);
      if (!measured.ok()) return measured.error();
      cases.push_back(std::move(measured).value());
    }
  }
  return cases;
}

}  // namespace gpupool::gpu_tests
