// What the machine charges for the things an allocator's host code is made of: to tell whether
// figures differ between two machines because of the code or because of the machine.
//
// Thread safety: one thread, while no other of the process is busy. Cost: about two seconds,
// and 1 GiB of memory.
#ifndef GPUPOOL_BENCH_PEERS_MACHINE_H_
#define GPUPOOL_BENCH_PEERS_MACHINE_H_

#include <cstdint>
#include <optional>
#include <string>

namespace gpupool::bench {

struct MachineFacts {
  std::string cpu;
  std::uint64_t cores = 0;
  std::string kernel;
  bool is_virtual = false;   // the processor says that it runs under a hypervisor
  std::string clock_source;  // "tsc": steady_clock needs no system call
  std::string huge_pages;    // transparent ones, as the kernel prints the choice
  /// A dependent 64-bit multiplication: three cycles of the processor. The least and the most of
  /// the rounds tell how evenly the machine gives its cores.
  double multiply_ns = 0;
  double multiply_ns_least = 0;
  double multiply_ns_most = 0;
  double clock_ns = 0;             // steady_clock::now
  double mutex_ns = 0;             // lock and unlock, nobody waiting, a second thread alive
  double compare_exchange_ns = 0;  // locked, the line in the cache
  double system_call_ns = 0;       // the shortest
  /// MEMBARRIER_CMD_PRIVATE_EXPEDITED; with another thread asleep, and with one running. None:
  /// refused, and why.
  std::optional<double> barrier_asleep_ns;
  std::optional<double> barrier_running_ns;
  std::string barrier_refusal;
  double page_fault_ns = 0;          // first write to a page of 4 KiB of fresh mmap memory
  double page_fault_default_ns = 0;  // per 4 KiB, as the kernel chooses (huge pages where it does)
  /// The same per 4 KiB, in small pages, over 1 GiB at once: more than a virtual machine is likely
  /// to have lying ready, so that its host has to find pages, too.
  double page_fault_gib_ns = 0;
  double load_ns = 0;       // dependent load, random over 64 MiB, pages of 4 KiB
  double load_huge_ns = 0;  // the same where huge pages were asked for
};

MachineFacts measure_machine();

std::string to_json_text(const MachineFacts& facts);
/// Several lines, each with its end.
std::string to_text(const MachineFacts& facts);

}  // namespace gpupool::bench

#endif  // GPUPOOL_BENCH_PEERS_MACHINE_H_
