// Frees a server's port in forked children: a child that does not exec keeps every socket open, so
// that after its parent's death a restarted service could not bind, and clients that connect to
// the orphan would hang.
//
// While a ForkGuard lives, each fork closes its sockets in the child.
// Thread safety: any thread. Cost: a slot of a fixed table, as the child may allocate nothing.
#ifndef GPUPOOL_EXPORTER_HTTP_FORK_GUARD_H_
#define GPUPOOL_EXPORTER_HTTP_FORK_GUARD_H_

#include <vector>

namespace gpupool::internal {

class ForkGuard {
 public:
  explicit ForkGuard(const std::vector<int>& sockets);
  ~ForkGuard();
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

 private:
  std::vector<int> sockets_;
};

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_FORK_GUARD_H_
