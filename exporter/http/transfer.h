// The last step before an answer is sent: it is left out where the client has it already (ETag,
// If-None-Match), and packed where it is large and the client accepts that.
//
// Thread safety: plain functions. Cost: that of packing.
#ifndef GPUPOOL_EXPORTER_HTTP_TRANSFER_H_
#define GPUPOOL_EXPORTER_HTTP_TRANSFER_H_

#include <string>
#include <string_view>

#include "exporter/http/http_message.h"

namespace gpupool::internal {

/// Also for HEAD, whose headers are those of GET.
void prepare_transfer(const HttpRequest& request, HttpResponse& response);

/// A version for a body that says all of it.
std::string content_version(std::string_view body);

}  // namespace gpupool::internal

#endif  // GPUPOOL_EXPORTER_HTTP_TRANSFER_H_
