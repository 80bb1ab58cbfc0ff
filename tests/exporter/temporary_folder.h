// An empty folder for one test, removed with all that is in it.
#ifndef GPUPOOL_TESTS_EXPORTER_TEMPORARY_FOLDER_H_
#define GPUPOOL_TESTS_EXPORTER_TEMPORARY_FOLDER_H_

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace gpupool::testing_support {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(testing::TempDir() + "gpupool-XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryFolder() {
    std::error_code ignored;  // the test has said what it found
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::string& path() const { return path_; }
  std::string path(const std::string& name) const { return path_ + "/" + name; }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
  }
  std::string read(const std::string& name) const {
    std::ifstream file(path(name));
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }
  /// Names of what is in it.
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      found.push_back(entry.path().filename());
    }
    return found;
  }

 private:
  std::string path_;
};

}  // namespace gpupool::testing_support

#endif  // GPUPOOL_TESTS_EXPORTER_TEMPORARY_FOLDER_H_
