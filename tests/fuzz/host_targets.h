#pragma once

#include <string>

// Readers of lists of hosts, and of the status of a run, on texts that nobody wrote. One thread.
namespace smp::fuzz {

void read_hosts(const std::string& text);
void read_host_file(const std::string& text);
void read_status(const std::string& text);

}  // namespace smp::fuzz
