#include "exporter/http/http_message.h"

namespace gpupool::internal {

const char* reason_phrase(int status) noexcept {
  switch (status) {
    case 200: return "OK";
    case 304: return "Not Modified";
    case 400: return "Bad Request";
    case 401: return "Unauthorized";
    case 403: return "Forbidden";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 413: return "Request Entity Too Large";
    case 500: return "Internal Server Error";
    case 503: return "Service Unavailable";
    default: return status < 500 ? "Refused" : "Failed";
  }
}

}  // namespace gpupool::internal
