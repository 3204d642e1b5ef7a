#include "composer/net/aws.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "composer/net/digest.h"
#include "tests/support/doctest.h"
#include "tests/support/error_of.h"
#include "tests/support/folder.h"

namespace composer::aws_test {

using namespace net;

namespace {

Environment variables(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) {
    const auto found = values.find(name);
    return found == values.end() ? std::string() : found->second;
  };
}

std::string header(const std::vector<HttpHeader>& headers, const std::string& name) {
  for (const HttpHeader& one : headers)
    if (one.name == name) return one.value;
  return "none";
}

constexpr std::time_t kMay2013 = 1369353600;  // 2013-05-24 00:00:00 UTC

TEST_CASE("The host that is signed has no port that its scheme has anyway, as clients send it") {
  CHECK(host_header("http://", "127.0.0.1:80") == "127.0.0.1");
  CHECK(host_header("https://", "s3.example:443") == "s3.example");
  CHECK(host_header("http://", "s3.example:443") == "s3.example:443");
  CHECK(host_header("http://", "s3.example:9000") == "s3.example:9000");
  CHECK(host_header("https://", "[::1]:443") == "[::1]");
  CHECK(host_header("http://", "s3.example") == "s3.example");
}

}  // namespace

TEST_CASE("Requests are signed as in the examples that Amazon publishes for S3") {
  const AwsKeys keys{"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", ""};
  struct Row {
    AwsRequest request;
    std::map<std::string, std::string> more;
    const char* signature;
  };
  const std::string host = "examplebucket.s3.amazonaws.com";
  const std::string empty = sha256("");
  const std::vector<Row> rows{
      {{"GET", host, "/test.txt", {}, empty},
       {{"range", "bytes=0-9"}},
       "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
      {{"PUT", host, "/test%24file.text", {}, sha256("Welcome to Amazon S3.")},
       {{"date", "Fri, 24 May 2013 00:00:00 GMT"}, {"x-amz-storage-class", "REDUCED_REDUNDANCY"}},
       "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
      {{"GET", host, "/", {{"lifecycle", ""}}, empty},
       {},
       "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
      {{"GET", host, "/", {{"prefix", "J"}, {"max-keys", "2"}}, empty},
       {},
       "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"}};
  for (const Row& row : rows) {
    CAPTURE(row.request.path);
    const std::string text = header(signature(row.request, keys, "us-east-1", kMay2013, row.more), "Authorization");
    CHECK(text.find("Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,") != text.npos);
    CHECK(text.ends_with(std::string("Signature=") + row.signature));
  }
}

TEST_CASE("A session token is sent and signed") {
  const auto headers = signature({"GET", "h", "/", {}, sha256("")}, {"id", "secret", "tok"}, "eu-west-1", kMay2013);
  CHECK(header(headers, "x-amz-security-token") == "tok");
  CHECK(header(headers, "x-amz-date") == "20130524T000000Z");
  CHECK(header(headers, "Authorization").find("x-amz-security-token,") != std::string::npos);
}

TEST_CASE("Headers of the request are signed but not sent a second time") {
  const auto headers = signature({"GET", "h", "/", {}, sha256("")}, {"id", "secret", ""}, "eu-west-1", kMay2013,
                                 {{"x-amz-meta-a", "1"}});
  CHECK(header(headers, "Authorization").find(";x-amz-meta-a,") != std::string::npos);
  CHECK(std::ranges::count(headers, "x-amz-meta-a", &HttpHeader::name) == 0);
}

TEST_CASE("Queries are sorted and encoded") {
  CHECK(query_text({{"uploadId", "a/b+c"}, {"partNumber", "1"}, {"a b", "="}}) ==
        "a%20b=%3D&partNumber=1&uploadId=a%2Fb%2Bc");
  CHECK(query_text({{"uploads", ""}}) == "uploads=");
}

TEST_CASE("Keys come from the environment, or from the profile in the file of credentials") {
  const test::Folder folder;
  std::filesystem::create_directory(folder / ".aws");
  std::ofstream(folder / ".aws/credentials") << "[default]\naws_access_key_id = d\naws_secret_access_key=ds\n"
                                                "# a comment\n[ work ]\naws_access_key_id=w\n"
                                                "aws_secret_access_key = ws=\naws_session_token= wt \n[half]\n"
                                                "aws_access_key_id = h\n";
  const std::string home = folder.path();
  const auto keys = [&](std::map<std::string, std::string> values) {
    values["HOME"] = home;
    const AwsKeys found = find_keys(variables(values));
    return found.id + "," + found.secret + "," + found.token;
  };
  CHECK(keys({{"AWS_ACCESS_KEY_ID", "e"}, {"AWS_SECRET_ACCESS_KEY", "es"}, {"AWS_SESSION_TOKEN", "et"}}) == "e,es,et");
  CHECK(keys({}) == "d,ds,");
  CHECK(keys({{"AWS_PROFILE", "work"}}) == "w,ws=,wt");
  CHECK(keys({{"AWS_SHARED_CREDENTIALS_FILE", home + "/.aws/credentials"}, {"HOME", "/none"}}) == "d,ds,");
  const std::string half = test::error_of([&] { keys({{"AWS_PROFILE", "half"}}); });
  CHECK(half.find("has no keys of the profile half; set one of the two") != half.npos);
  const std::string one = test::error_of([&] { keys({{"AWS_SECRET_ACCESS_KEY", "verysecret"}}); });
  CHECK(one.find("must both be set; the first is missing") != one.npos);
  CHECK(one.find("verysecret") == one.npos);
}

TEST_CASE("The region comes from the environment, the profile's configuration, or is us-east-1") {
  const test::Folder folder;
  std::filesystem::create_directory(folder / ".aws");
  std::ofstream(folder / ".aws/config") << "[default]\nregion = eu-west-1\n[profile work]\nregion=eu-north-1\n";
  const std::string home = folder.path();
  CHECK(find_region(variables({{"AWS_REGION", "a"}, {"AWS_DEFAULT_REGION", "b"}})) == "a");
  CHECK(find_region(variables({{"AWS_DEFAULT_REGION", "b"}})) == "b");
  CHECK(find_region(variables({{"HOME", home}})) == "eu-west-1");
  CHECK(find_region(variables({{"HOME", home}, {"AWS_PROFILE", "work"}})) == "eu-north-1");
  CHECK(find_region(variables({{"HOME", home}, {"AWS_PROFILE", "other"}})) == "us-east-1");
}

TEST_CASE("The endpoint is the first that is set, and must be a URL") {
  CHECK(find_endpoint(variables({})).empty());
  CHECK(find_endpoint(variables({{"S3_ENDPOINT_URL", "http://a/"}, {"AWS_ENDPOINT_URL", "http://b"}})) == "http://a");
  CHECK(find_endpoint(variables({{"AWS_ENDPOINT_URL", "https://b/x"}})) == "https://b/x");
  CHECK(find_endpoint(variables({{"AWS_ENDPOINT_URL", "https://b//"}})) == "https://b");
  const std::string error = test::error_of([] { find_endpoint(variables({{"AWS_ENDPOINT_URL", "b:9000"}})); });
  CHECK(error == "AWS_ENDPOINT_URL: must begin with http:// or https://, got b:9000");
}

TEST_CASE("Digests are those of their standards") {
  const test::Folder folder;
  std::ofstream(folder / "abc") << "xabc";
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256(folder / "abc", 1, 3) == sha256("abc"));
  CHECK(md5_of_file(folder / "abc") == "6ffeb24dbea49bd0d2a744a144298ac9");
  CHECK(test::error_of([&] { sha256(folder / "abc", 1, 4); }).find("became shorter") != std::string::npos);
  CHECK(hexadecimal(hmac_sha256("Jefe", "what do ya want for nothing?")) ==
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
}

}  // namespace composer::aws_test
