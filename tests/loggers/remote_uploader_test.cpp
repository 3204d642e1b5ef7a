#include "composer/loggers/remote_uploader.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "composer/core/state.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/fake_s3.h"
#include "tests/support/folder.h"
#include "tests/support/text.h"

namespace composer::loggers::remote_uploader_test {
namespace {

using test::contains;
using test::text_of;
using test::write_text;

struct Run {
  explicit Run(RemoteUploaderOptions options) : uploader(std::move(options)) {
    state.run_name = "r";
    uploader.init(state, logger);
  }
  State state;
  RemoteUploader uploader;
  Logger logger{state, {&uploader}};
};

// The text of the warnings while it runs.
template <class F>
std::string warnings_of(const F& run) {
  std::string all;
  const WarningSink before = redirect_warnings([&](const std::string& text) { all += text + "\n"; });
  run();
  redirect_warnings(before);
  return all;
}

}  // namespace

TEST_CASE("RemoteUploader sends logged files to the URI under their names") {
  const test::Folder folder;
  Run run({.uri = "file://" + (folder / "up/{run_name}").string()});
  run.logger.upload_file({.path = write_text(folder / "a", "one"), .name = "plots/{run_name}-{batch}.svg"});
  run.uploader.flush();
  CHECK(text_of(folder / "up/r/plots/r-0.svg") == "one");
  run.uploader.close(run.state, run.logger);
}

TEST_CASE("RemoteUploader replaces a file only if that was asked for, and lists failures at the end") {
  const test::Folder folder;
  const std::string uri = "file://" + (folder / "up").string();
  const std::string told = warnings_of([&] {
    Run run({.uri = uri});
    run.logger.upload_file({.path = write_text(folder / "a", "one"), .name = "x"});
    run.logger.upload_file({.path = write_text(folder / "b", "two"), .name = "x"});
    run.uploader.flush();
    CHECK(text_of(folder / "up/x") == "one");
    run.logger.upload_file({.path = folder / "b", .name = "x", .overwrite = true});
    run.uploader.flush();
    CHECK(text_of(folder / "up/x") == "two");
    run.uploader.close(run.state, run.logger);
  });
  CHECK(contains(told, "RemoteUploader: x was not uploaded: " + uri +
                           "/x exists with other contents; set overwrite to replace it, or upload the file by another "
                           "name\n"));
  CHECK(contains(told, "RemoteUploader: 1 file was not uploaded to " + uri));
}

TEST_CASE("RemoteUploader leaves a file of S3 that has the same contents, and counts other contents as a failure") {
  const test::Folder folder;
  test::FakeS3 server;
  const test::Variables variables(test::variables_of(server));
  server.set("x", "one");
  const auto before = server.history().size();
  const std::string told = warnings_of([&] {
    Run run({.uri = "s3://b"});
    run.logger.upload_file({.path = write_text(folder / "a", "one"), .name = "x"});
    run.uploader.flush();
    CHECK(server.history().size() == before);
    run.logger.upload_file({.path = write_text(folder / "b", "two"), .name = "x"});
    run.logger.upload_file({.path = write_text(folder / "c", "three"), .name = "x"});
    run.uploader.close(run.state, run.logger);
  });
  CHECK(server.objects().at("x") == "one");
  CHECK(contains(told, "s3://b/x exists with other contents"));
  CHECK(contains(told, "2 files were not uploaded to s3://b"));
}

TEST_CASE("RemoteUploader ends with an error if failures are to be errors") {
  const test::Folder folder;
  test::FakeS3 server;
  const test::Variables variables(test::variables_of(server));
  server.intercept([](const test::HttpCall&) { return test::HttpReply{403}; });
  warnings_of([&] {
    Run run({.uri = "s3://b", .on_failure = LogFailure::FAIL});
    run.logger.upload_file({.path = write_text(folder / "a", "one"), .name = "x", .overwrite = true});
    const std::string error = test::error_of([&] { run.uploader.close(run.state, run.logger); });
    CHECK(contains(error, "1 file was not uploaded to s3://b"));
    CHECK(contains(error, "status 403"));
  });
}

TEST_CASE("RemoteUploader waits for a hanging server up to its limit, and then cancels") {
  const test::Folder folder;
  test::FakeS3 server;
  const test::Variables variables(test::variables_of(server));
  server.intercept([](const test::HttpCall&) { return test::HttpReply{.fault = test::HttpReply::Fault::HANG}; });
  const std::string told = warnings_of([&] {
    Run run({.uri = "s3://b", .flush_timeout = Seconds(0.05)});
    run.logger.upload_file({.path = write_text(folder / "a", "one"), .name = "x"});
    run.uploader.flush();
    run.uploader.close(run.state, run.logger);
  });
  CHECK(contains(told, "are not finished after 0.05 s"));
  CHECK(contains(told, "x: there was no time left"));
}

TEST_CASE("RemoteUploader rejects options with their value, and missing credentials at INIT") {
  const auto error = [](RemoteUploaderOptions options) {
    return test::error_of([&] { RemoteUploader made(options); });
  };
  CHECK(contains(error({}), "uri is required"));
  CHECK(contains(error({.uri = "gs://u:secret@x"}), "got gs://x"));
  CHECK(contains(error({.uri = "s3://b/{epoch}"}), "unknown placeholder, {epoch}"));
  CHECK(contains(error({.uri = "s3://b", .capacity = 0}), "capacity must be >= 1, got 0"));
  CHECK(contains(error({.uri = "s3://b", .attempts = 0}), "attempts must be from 1 to 100, got 0"));
  CHECK(contains(error({.uri = "s3://b", .flush_timeout = Seconds(-1)}), "got -1"));
  const test::Folder folder;
  const test::Variables variables({{"HOME", folder.path()}, {"AWS_ACCESS_KEY_ID", ""}, {"AWS_SECRET_ACCESS_KEY", ""}});
  CHECK(contains(test::error_of([] { Run run({.uri = "s3://b"}); }), "there are no credentials"));
}

}  // namespace composer::loggers::remote_uploader_test
