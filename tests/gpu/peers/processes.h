// The other process of share_between_processes: this program, started anew with --child.
//
// Thread safety: plain functions.
#ifndef GPUPOOL_TESTS_GPU_PEERS_PROCESSES_H_
#define GPUPOOL_TESTS_GPU_PEERS_PROCESSES_H_

#include <string>

namespace gpupool::gpu_tests {

/// Opens the memory that `spec` names, checks what is in it, writes an answer. The exit status.
int run_child(const std::string& spec);

}  // namespace gpupool::gpu_tests

#endif  // GPUPOOL_TESTS_GPU_PEERS_PROCESSES_H_
