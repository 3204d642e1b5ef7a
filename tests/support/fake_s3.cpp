#include "tests/support/fake_s3.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "composer/net/digest.h"
#include "composer/net/http.h"

namespace composer::test {
namespace {

constexpr const char* kMark = "x-amz-meta-libcomposer-upload";

HttpReply error(int status, const std::string& code) {
  return {status, "<?xml version=\"1.0\"?><Error><Code>" + code + "</Code><Message>It failed</Message></Error>"};
}

std::string etag(const std::string& hash) { return "ETag: \"" + hash + "\""; }

std::string bytes_of(const std::string& hexadecimal) {
  std::string bytes;
  for (std::size_t i = 0; i < hexadecimal.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hexadecimal.substr(i, 2), nullptr, 16));
  return bytes;
}

std::map<std::string, std::string> parsed_query(const std::string& query) {
  std::map<std::string, std::string> values;
  for (std::size_t at = 0; at < query.size();) {
    const std::size_t end = std::min(query.find('&', at), query.size()), equals = query.find('=', at);
    values[net::percent_decoded(query.substr(at, equals - at))] =
        net::percent_decoded(query.substr(equals + 1, end - equals - 1));
    at = end + 1;
  }
  return values;
}

}  // namespace

FakeS3::FakeS3() : server_([this](const HttpCall& call) { return answer(call); }) {}

std::map<std::string, std::string> FakeS3::objects() const {
  const std::lock_guard lock(mutex_);
  return objects_;
}

void FakeS3::set(const std::string& key, const std::string& content) {
  const std::lock_guard lock(mutex_);
  objects_[key] = content;
}

void FakeS3::lose_completion() {
  const std::lock_guard lock(mutex_);
  lose_completion_ = true;
}

void FakeS3::encrypt() {
  const std::lock_guard lock(mutex_);
  encrypts_ = true;
}

void FakeS3::drop_marks() {
  const std::lock_guard lock(mutex_);
  drops_marks_ = true;
}

std::string FakeS3::hash(const std::string& content) const { return net::md5((encrypts_ ? "key" : "") + content); }

void FakeS3::erase(const std::string& key) {
  const std::lock_guard lock(mutex_);
  objects_.erase(key);
}

std::size_t FakeS3::open_uploads() const {
  const std::lock_guard lock(mutex_);
  return uploads_.size();
}

void FakeS3::intercept(std::function<std::optional<HttpReply>(const HttpCall&)> instead) {
  const std::lock_guard lock(mutex_);
  instead_ = std::move(instead);
}

std::vector<std::map<std::string, std::string>> FakeS3::history() const {
  const std::lock_guard lock(mutex_);
  return history_;
}

HttpReply FakeS3::list(const std::map<std::string, std::string>& query) const {
  const std::string prefix = query.at("prefix");
  const auto token = query.find("continuation-token");
  auto from = token == query.end() ? objects_.begin() : objects_.lower_bound(token->second);
  std::string page = "<ListBucketResult><EncodingType>url</EncodingType>";
  int entries = 0;
  for (; from != objects_.end(); ++from) {
    if (!from->first.starts_with(prefix)) continue;
    if (++entries > 2) {  // short pages
      page += "<NextContinuationToken>" + from->first + "</NextContinuationToken>";
      break;
    }
    std::string key = net::percent_encoded(from->first, true);
    for (std::size_t at; (at = key.find("%20")) != key.npos;) key.replace(at, 3, "+");
    page += "<Contents><Key>" + key + "</Key><Size>" + std::to_string(from->second.size()) + "</Size></Contents>";
  }
  return {200, page + "</ListBucketResult>"};
}

HttpReply FakeS3::answer(const HttpCall& call) {
  const std::lock_guard lock(mutex_);
  if (instead_)
    if (auto reply = instead_(call)) return std::move(*reply);
  const std::size_t mark = std::min(call.target.find('?'), call.target.size());
  const std::string path = net::percent_decoded(call.target.substr(0, mark));
  const auto query = parsed_query(mark < call.target.size() ? call.target.substr(mark + 1) : "");
  if (!path.starts_with("/b")) return error(404, "NoSuchBucket");
  const std::string key = path.size() > 3 ? path.substr(3) : "";
  if (query.contains("list-type")) return list(query);
  if (query.contains("uploads")) {
    const std::string id = "upload/" + std::to_string(next_upload_++);
    const auto mark = call.headers.find(kMark);
    uploads_[id] = {mark == call.headers.end() ? "" : mark->second};
    return {200, "<R><UploadId>" + id + "</UploadId></R>"};
  }
  if (query.contains("uploadId")) {
    const auto upload = uploads_.find(query.at("uploadId"));
    if (upload == uploads_.end()) return error(404, "NoSuchUpload");
    if (call.method == "PUT") {
      upload->second.parts[std::stoi(query.at("partNumber"))] = call.body;
      return {200, "", {etag(hash(call.body))}};
    }
    if (call.method == "POST") {
      std::string whole, hashes;
      for (const auto& [number, part] : upload->second.parts) whole += part, hashes += bytes_of(hash(part));
      objects_[key] = whole;
      etags_[key] = hash(hashes) + "-" + std::to_string(upload->second.parts.size());
      marks_[key] = upload->second.mark;
      history_.push_back(objects_);
    }
    uploads_.erase(upload);
    if (std::exchange(lose_completion_, false)) return {200, "", {}, HttpReply::Fault::CLOSE};
    return {200, "<R></R>"};
  }
  if (call.method == "PUT") {
    objects_[key] = call.body;
    etags_.erase(key), marks_.erase(key);
    history_.push_back(objects_);
    return {200, "", {etag(hash(call.body))}};
  }
  if (call.method == "DELETE") {
    objects_.erase(key);
    history_.push_back(objects_);
    return {204};
  }
  const auto found = objects_.find(key);
  if (found == objects_.end()) return call.method == "HEAD" ? HttpReply{404} : error(404, "NoSuchKey");
  const auto joined = etags_.find(key);
  std::vector<std::string> headers = {etag(joined == etags_.end() ? hash(found->second) : joined->second)};
  if (encrypts_) headers.emplace_back("x-amz-server-side-encryption: aws:kms");
  if (const auto mark = marks_.find(key); mark != marks_.end() && !mark->second.empty() && !drops_marks_)
    headers.push_back(kMark + (": " + mark->second));
  return {200, found->second, std::move(headers)};
}

Variables::Variables(const std::map<std::string, std::string>& values) {
  for (const auto& [name, value] : values) {
    const char* before = std::getenv(name.c_str());
    before_[name] = before != nullptr ? std::optional<std::string>(before) : std::nullopt;
    ::setenv(name.c_str(), value.c_str(), 1);
  }
}

Variables::~Variables() {
  for (const auto& [name, value] : before_)
    if (value)
      ::setenv(name.c_str(), value->c_str(), 1);
    else
      ::unsetenv(name.c_str());
}

std::map<std::string, std::string> variables_of(const FakeS3& server) {
  return {{"S3_ENDPOINT_URL", server.url()},
          {"AWS_ACCESS_KEY_ID", "id"},
          {"AWS_SECRET_ACCESS_KEY", "verysecret"},
          {"AWS_SESSION_TOKEN", ""},
          {"AWS_REGION", "us-east-1"}};
}

}  // namespace composer::test
