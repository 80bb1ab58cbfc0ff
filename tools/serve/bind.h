// Where recordings are served unless --bind says otherwise: below the ports of exporters.
#ifndef GPUPOOL_TOOLS_SERVE_BIND_H_
#define GPUPOOL_TOOLS_SERVE_BIND_H_

namespace gpupool::tools {

inline constexpr const char* kDefaultBind = "127.0.0.1:10062";

}  // namespace gpupool::tools

#endif  // GPUPOOL_TOOLS_SERVE_BIND_H_
