// What goes wrong between S3 and a RemoteStore.
#include "composer/net/s3_store.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "composer/net/remote_store.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/fake_s3.h"
#include "tests/support/folder.h"
#include "tests/support/http_server.h"
#include "tests/support/text.h"
#include "tests/support/warnings.h"

namespace composer::net::s3_store_test {
namespace {

using test::error_of;
using test::FakeS3;
using test::HttpCall;
using test::HttpReply;
namespace fs = std::filesystem;
using test::contains;
using test::write_text;

std::unique_ptr<RemoteStore> open(const std::string& uri) {
  StoreOptions options;
  options.http.sleep = [](std::chrono::milliseconds, const std::stop_token&) {};
  options.part_size = 5 << 20;
  return open_store(uri, options);
}

}  // namespace

TEST_CASE("An upload in parts whose last response is lost has succeeded if the object is there") {
  const test::Folder folder;
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  const test::Warnings warnings;
  const std::string data((5 << 20) + 1, 'd'), stale(data.size(), 's');
  server.set("f/m", stale);
  server.lose_completion();
  open("s3://b/f")->put(write_text(folder / "long", data), "m");
  CHECK(server.objects().at("f/m") == data);
  CHECK(warnings.texts.empty());
}

TEST_CASE("At a server that keeps no metadata, an upload whose last response is lost is known by its ETag") {
  const test::Folder folder;
  FakeS3 server;
  server.drop_marks();
  const test::Variables variables(variables_of(server));
  const std::string data((5 << 20) + 1, 'd');
  server.lose_completion();
  open("s3://b/f")->put(write_text(folder / "long", data), "m");
  CHECK(server.objects().at("f/m") == data);
}

TEST_CASE("A file as long as a part is sent at once, and the parts of a longer one are at most 10,000") {
  const test::Folder folder;
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  open("s3://b/f")->put(write_text(folder / "part", std::string(5 << 20, 'd')), "m");
  CHECK(server.calls().size() == 1);
  constexpr std::uint64_t kMiB = 1 << 20;
  CHECK(s3_part_size(10'000 * 5 * kMiB, 5 * kMiB) == 5 * kMiB);
  CHECK(s3_part_size(10'000 * 5 * kMiB + 1, 5 * kMiB) == 6 * kMiB);
  CHECK(s3_part_size(10'000 * 6 * kMiB, 5 * kMiB) == 6 * kMiB);
  CHECK(s3_part_size(1, 64 * kMiB) == 64 * kMiB);
}

TEST_CASE("A file that is missing counts as removed, but a bucket that is missing is an error") {
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  std::string code = "NoSuchKey";
  server.intercept([&](const HttpCall&) { return HttpReply{404, "<Error><Code>" + code + "</Code></Error>"}; });
  const auto store = open("s3://b/f");
  CHECK_NOTHROW(store->remove("m"));
  code = "NoSuchBucket";
  CHECK(contains(error_of([&] { store->remove("m"); }), "NoSuchBucket"));
}

TEST_CASE("A bucket in another region than the one that is set is used there, and the region is told") {
  const std::string wrong = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>";
  for (const HttpReply& refusal : {HttpReply{400, wrong}, HttpReply{400, "", {"x-amz-bucket-region: eu-west-3"}},
                                   HttpReply{301, "", {"x-amz-bucket-region: eu-west-3"}}}) {
    FakeS3 server;
    const test::Variables variables(variables_of(server));
    server.set("f/m", "content");
    server.intercept([&](const HttpCall& call) -> std::optional<HttpReply> {
      if (contains(call.headers.at("authorization"), "/eu-west-3/s3/")) return {};
      return refusal;
    });
    const test::Warnings warnings;
    CHECK(open("s3://b/f")->list().size() == 1);
    CHECK(warnings.say("set AWS_REGION=eu-west-3"));
    if (!refusal.headers.empty()) CHECK(open("s3://b/f")->size("m") == 7);  // responses to HEAD have no body
  }
}

TEST_CASE("A region that would change the host is not believed") {
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  server.intercept([](const HttpCall&) {
    return HttpReply{400, "<Error><Code>X</Code><Region>evil.example/</Region></Error>"};
  });
  CHECK_THROWS_AS(open("s3://b/f")->list(), HttpError);
  CHECK(server.calls().size() == 1);
}

TEST_CASE("Where the clocks differ, requests are signed with the server's") {
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  server.set("f/m", "content");
  server.intercept([](const HttpCall& call) -> std::optional<HttpReply> {
    if (call.headers.at("x-amz-date").starts_with("20370101T")) return {};
    return HttpReply{403,
                     call.method == "HEAD" ? "" : "<Error><Code>RequestTimeTooSkewed</Code></Error>",
                     {"Date: Thu, 01 Jan 2037 12:00:00 GMT"}};
  });
  const test::Warnings warnings;
  const auto store = open("s3://b/f");
  CHECK(store->size("m") == 7);
  CHECK(warnings.say("the clock of this machine differs from the server's"));
  CHECK(store->list().size() == 1);
  CHECK(server.calls().size() == 3);
}

TEST_CASE("A request that is refused for its time has a remedy that names the clock") {
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  server.intercept([](const HttpCall&) { return HttpReply{403, "<Error><Code>RequestTimeTooSkewed</Code></Error>"}; });
  CHECK(contains(error_of([] { open("s3://b/f")->list(); }), "set the clock of this machine"));
}

TEST_CASE("A bucket of a tenant is one of Ceph's, and refused at AWS") {
  FakeS3 server;
  {
    const test::Variables variables(variables_of(server));
    server.intercept([](const HttpCall&) { return HttpReply{}; });
    open("s3://tenant:b/f")->remove("m");
    CHECK(server.calls().at(0).target == "/tenant%3Ab/f/m");
  }
  auto of_aws = variables_of(server);
  for (auto& [name, value] : of_aws)
    if (contains(name, "ENDPOINT")) value = "";
  const test::Variables variables(of_aws);
  CHECK_THROWS_AS(open("s3://tenant:b/f"), ConfigError);
}

TEST_CASE("The object of a folder itself is not listed as a file in it") {
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  server.set("f/", "");
  server.set("f/a", "1");
  const auto files = open("s3://b/f")->list();
  REQUIRE(files.size() == 1);
  CHECK(files[0].name == "a");
}

TEST_CASE("An upload in parts that S3 does not know any more has failed, also if an older object has its size") {
  const test::Folder folder;
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  const test::Warnings warnings;
  const std::string data((5 << 20) + 1, 'd'), stale(data.size(), 's');
  server.set("f/m", stale);
  server.intercept([](const HttpCall& call) -> std::optional<HttpReply> {
    if (call.method != "GET" && call.method != "HEAD" && contains(call.target, "uploadId=") &&
        !contains(call.target, "partNumber"))
      return HttpReply{404, "<Error><Code>NoSuchUpload</Code><Message>gone</Message></Error>"};
    return {};
  });
  const auto store = open("s3://b/f");
  write_text(folder / "long", data);
  CHECK(contains(error_of([&] { store->put(folder / "long", "m"); }), "NoSuchUpload"));
  CHECK(server.objects().at("f/m") == stale);
  CHECK(contains(error_of([&] { store->put(folder / "long", "none"); }), "NoSuchUpload"));
  CHECK(warnings.texts.empty());  // no parts are left
}

TEST_CASE("Files go to a bucket whose ETags are no MD5, as with SSE-KMS, and come back") {
  const test::Folder folder;
  FakeS3 server;
  server.encrypt();
  const test::Variables variables(variables_of(server));
  const test::Warnings warnings;
  const auto store = open("s3://b/f");
  const std::string data((5 << 20) + 1, 'd');
  write_text(folder / "long", data);
  write_text(folder / "short", "short");
  server.set("f/lost", std::string(data.size(), 's'));
  store->put(folder / "long", "long");
  store->put(folder / "short", "short");
  server.lose_completion();
  store->put(folder / "long", "lost");
  CHECK(server.objects().at("f/lost") == data);
  for (const char* name : {"long", "short", "lost"}) CHECK_NOTHROW(store->get(name, folder / "back"));
  CHECK(warnings.texts.empty());
  CHECK(server.open_uploads() == 0);
}

TEST_CASE("Names with empty parts, \".\" or \"..\" are refused by every store, and nothing is sent") {
  const test::Folder folder;
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  write_text(folder / "f", "text");
  fs::create_directory(folder / "remote");
  for (const std::string& uri :
       {std::string("s3://b/p"), server.url() + "/p", "file://" + (folder / "remote").string()}) {
    const auto store = open(uri);
    for (const char* name : {"", "/a", "a/", "a//b", ".", "./a", "a/./b", "..", "../a", "a/../../b", "a/.."}) {
      CAPTURE(uri);
      CAPTURE(name);
      const std::string refused = "cannot be the name";
      CHECK(contains(error_of([&] { store->put(folder / "f", name); }), refused));
      CHECK(contains(error_of([&] { store->get(name, folder / "got" / "x"); }), refused));
      CHECK(contains(error_of([&] { store->remove(name); }), refused));
      CHECK(contains(error_of([&] { store->size(name); }), refused));
    }
  }
  CHECK(server.calls().empty());
  CHECK_FALSE(fs::exists(folder / "got"));
  for (const char* uri : {"s3://b/../p", "s3://b/p/./q", "s3://b/p//q"}) {
    CAPTURE(uri);
    CHECK(contains(error_of([&] { open(uri); }), "cannot be a folder of a bucket"));
  }
}

TEST_CASE("A listing is decoded only if S3 says that it is encoded") {
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  std::string encoding;
  server.intercept([&](const HttpCall&) {
    return HttpReply{200, "<ListBucketResult>" + encoding +
                              "<Contents><Key>f/a+b%20c&amp;.json</Key><Size>3</Size></Contents></ListBucketResult>"};
  });
  const auto store = open("s3://b/f");
  CHECK(store->list().at(0).name == "a+b%20c&.json");
  encoding = "<EncodingType>url</EncodingType>";
  CHECK(store->list().at(0).name == "a b c&.json");
}

TEST_CASE("A listing that does not end is an error") {
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  int pages = 0;
  bool same = true;
  server.intercept([&](const HttpCall&) {
    return HttpReply{200, join("<ListBucketResult><NextContinuationToken>", same ? 7 : ++pages,
                               "</NextContinuationToken></ListBucketResult>")};
  });
  const auto store = open("s3://b/f");
  CHECK_THROWS_WITH_AS(store->list(), doctest::Contains("the server's list of files does not end"), HttpError);
  same = false;
  CHECK_THROWS_WITH_AS(store->list(), doctest::Contains("the server's list of files does not end"), HttpError);
  CHECK(pages == 10'000);
}

TEST_CASE("A file whose length the server does not tell has no size, rather than none") {
  FakeS3 server;
  const test::Variables variables(variables_of(server));
  server.intercept([](const HttpCall&) {
    return HttpReply{200, "", {"Transfer-Encoding: chunked", "Content-Length-Unknown: 1"}};
  });
  for (const std::string& uri : {std::string("s3://b/f"), server.url() + "/f"}) {
    CAPTURE(uri);
    CHECK(contains(error_of([&] { open(uri)->size("m"); }), "f/m: the server does not tell its size"));
  }
}

TEST_CASE("Temporary credentials that expire are read again from their file") {
  const test::Folder folder;
  FakeS3 server;
  auto values = variables_of(server);
  values["AWS_ACCESS_KEY_ID"] = values["AWS_SECRET_ACCESS_KEY"] = values["AWS_PROFILE"] = "";
  values["AWS_SHARED_CREDENTIALS_FILE"] = folder / "credentials";
  const test::Variables variables(values);
  const auto credentials = [&](const std::string& id) {
    write_text(folder / "credentials", "[default]\naws_access_key_id = " + id +
                                           "\naws_secret_access_key = verysecret\n" + "aws_session_token = token-of-" +
                                           id + "\n");
  };
  server.intercept([](const HttpCall& call) -> std::optional<HttpReply> {
    const bool expired = contains(call.headers.at("authorization"), "Credential=first/");
    if (!expired) return {};
    return HttpReply{call.method == "HEAD" ? 403 : 400,
                     "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"};
  });
  credentials("first");
  const auto store = open("s3://b/f");
  write_text(folder / "x", "text");
  CHECK(contains(error_of([&] { store->put(folder / "x", "x"); }), "400 ExpiredToken"));
  CHECK(server.calls().size() == 1);  // the file has no others
  credentials("second");
  store->put(folder / "x", "x");
  CHECK(server.objects().at("f/x") == "text");
  CHECK(server.calls().size() == 3);
  CHECK(server.calls().back().headers.at("x-amz-security-token") == "token-of-second");

  credentials("first");
  const auto other = open("s3://b/f");
  credentials("third");
  CHECK(other->size("x") == 4);  // a response to HEAD has no code
  write_text(folder / "long", std::string((5 << 20) + 1, 'd'));
  other->put(folder / "long", "long");
  CHECK(server.objects().at("f/long").size() == (5 << 20) + 1);
}

TEST_CASE("Credentials that expire are read again from the environment") {
  FakeS3 server;
  auto values = variables_of(server);
  const test::Variables variables(values);
  server.intercept([](const HttpCall& call) -> std::optional<HttpReply> {
    if (!contains(call.headers.at("authorization"), "Credential=id/")) return {};
    return HttpReply{400, "<Error><Code>ExpiredToken</Code></Error>"};
  });
  const auto store = open("s3://b/f");
  values["AWS_ACCESS_KEY_ID"] = "another";
  const test::Variables later(values);
  CHECK(store->list().empty());
}

}  // namespace composer::net::s3_store_test
