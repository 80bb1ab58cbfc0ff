#include "tools/top/fetch.h"

#include <curl/curl.h>

#include <algorithm>
#include <stdexcept>

namespace gpupool::tools {
namespace {

using Easy = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;

struct Transfer {
  Easy easy{nullptr, &curl_easy_cleanup};
  Answer answer;
};

std::size_t append(const char* data, std::size_t one, std::size_t count, void* context) {
  std::string& body = static_cast<Answer*>(context)->body;
  const std::size_t bytes = one * count;
  // Fewer than there were ends the transfer.
  if (body.size() + bytes > Fetcher::kMostBytes) return 0;
  body.append(data, bytes);
  return bytes;
}

/// The first line of what a server says about its refusal.
std::string first_line(const std::string& text) {
  constexpr std::size_t kMost = 120;
  return text.substr(0, std::min(text.find('\n'), kMost));
}

void finish(Transfer& transfer, CURLcode code) {
  Answer& answer = transfer.answer;
  long status = 0;
  curl_easy_getinfo(transfer.easy.get(), CURLINFO_RESPONSE_CODE, &status);
  if (code != CURLE_OK) {
    answer.error = curl_easy_strerror(code);
  } else if (status != 200) {
    answer.error = std::to_string(status) + ": " + first_line(answer.body);
  }
  if (!answer.error.empty()) answer.body.clear();
}

Easy prepare(const std::string& url, Answer& answer) {
  Easy easy(curl_easy_init(), &curl_easy_cleanup);
  if (easy == nullptr) throw std::runtime_error("libcurl has no memory for a transfer");
  CURL* const handle = easy.get();
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(Fetcher::kPatience.count()));
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  // By name: a server then looks for nothing else.
  curl_easy_setopt(handle, CURLOPT_ACCEPT_ENCODING, "gzip");
  curl_easy_setopt(handle, CURLOPT_USERAGENT, "gpupool-top");
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, &append);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &answer);
  return easy;
}

}  // namespace

struct Fetcher::Handles {
  std::unique_ptr<CURLM, decltype(&curl_multi_cleanup)> multi{nullptr, &curl_multi_cleanup};
};

Fetcher::Fetcher() : handles_(std::make_unique<Handles>()) {
  if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
    throw std::runtime_error("libcurl does not start");
  }
  handles_->multi.reset(curl_multi_init());
  if (handles_->multi == nullptr) throw std::runtime_error("libcurl has no memory");
}

Fetcher::~Fetcher() {
  handles_.reset();
  curl_global_cleanup();
}

std::vector<Answer> Fetcher::get(const std::vector<std::string>& urls) {
  CURLM* const multi = handles_->multi.get();
  std::vector<Transfer> transfers(urls.size());
  for (std::size_t i = 0; i < urls.size(); ++i) {
    transfers[i].easy = prepare(urls[i], transfers[i].answer);
    curl_easy_setopt(transfers[i].easy.get(), CURLOPT_PRIVATE, &transfers[i]);
    curl_multi_add_handle(multi, transfers[i].easy.get());
  }
  int running = 1;
  // Each has a time of its own, so that this ends.
  while (running > 0 && curl_multi_perform(multi, &running) == CURLM_OK) {
    int left = 0;
    while (const CURLMsg* const message = curl_multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      Transfer* transfer = nullptr;
      curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
      finish(*transfer, message->data.result);
    }
    if (running > 0) curl_multi_poll(multi, nullptr, 0, 100, nullptr);
  }
  std::vector<Answer> answers;
  for (Transfer& transfer : transfers) {
    curl_multi_remove_handle(multi, transfer.easy.get());
    if (transfer.answer.body.empty() && transfer.answer.error.empty()) {
      transfer.answer.error = "no answer";
    }
    answers.push_back(std::move(transfer.answer));
  }
  return answers;
}

}  // namespace gpupool::tools
