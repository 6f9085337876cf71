# SPDX-License-Identifier: MIT
# Joins the page's parts into one document, and writes it as a C source, with the Content-Security-Policy
# that allows its own script and style by their hashes and nothing else.
# cmake -DDIR=server/page -DOUT=page.c -DSTYLES=a.css;... -DSCRIPTS=a.js;... -P join.cmake

# base64_of(HEX OUT): of 32 bytes, as the policy wants hashes.
function(base64_of hex out)
  set(letters ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/)
  set(text "")
  string(APPEND hex 00) # 33 bytes are 44 letters; the last one is padding
  foreach(i RANGE 0 60 6)
    string(SUBSTRING ${hex} ${i} 6 three)
    foreach(shift 18 12 6 0)
      math(EXPR at "(0x${three} >> ${shift}) & 63")
      string(SUBSTRING ${letters} ${at} 1 letter)
      string(APPEND text ${letter})
    endforeach()
  endforeach()
  string(SUBSTRING ${text} 0 43 text)
  set(${out} "${text}=" PARENT_SCOPE)
endfunction()

# join(NAME FILES...): their texts one behind the other, without the lines that name the licence.
function(join name)
  set(all "")
  foreach(file ${ARGN})
    file(READ ${DIR}/${file} text)
    string(REGEX REPLACE "^[^\n]*SPDX-License-Identifier[^\n]*\n" "" text "${text}")
    string(APPEND all "${text}")
  endforeach()
  set(${name} "${all}" PARENT_SCOPE)
endfunction()

# The part's only mark in the document gives way to its text.
function(put mark text)
  string(FIND "${page}" "${mark}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "page.html lacks ${mark}")
  endif()
  string(LENGTH "${mark}" n)
  math(EXPR end "${at} + ${n}")
  string(SUBSTRING "${page}" 0 ${at} before)
  string(SUBSTRING "${page}" ${end} -1 after)
  set(page "${before}${text}${after}" PARENT_SCOPE)
endfunction()

join(style ${STYLES})
join(code ${SCRIPTS})
set(script "'use strict';\n(() => {\n${code}})();\n")
join(page page.html)
string(FIND "${script}" "</script" bad)
if(NOT bad EQUAL -1)
  message(FATAL_ERROR "the script has </script in it")
endif()
put("/*STYLE*/" "${style}")
put("/*SCRIPT*/" "${script}")
string(SHA256 style_hash "${style}")
string(SHA256 script_hash "${script}")
string(SHA256 page_hash "${page}")
base64_of(${style_hash} style_base64)
base64_of(${script_hash} script_base64)
string(SUBSTRING ${page_hash} 0 32 tag)
set(policy "default-src 'none'; script-src 'sha256-${script_base64}'; style-src 'sha256-${style_base64}'; \
connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
require-trusted-types-for 'script'; trusted-types 'none'")

file(WRITE ${OUT}.html "${page}")
file(READ ${OUT}.html hex HEX)
string(LENGTH "${hex}" n_digits)
math(EXPR n_bytes "${n_digits} / 2")
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
string(REGEX REPLACE "(0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,0x..,)" "\\1\n" bytes "${bytes}")
file(WRITE ${OUT} "/* Made by join.cmake of server/page. */
#include \"page.h\"

const char mf_srv_page_policy[] =
    \"${policy}\";
const char mf_srv_page_tag[] = \"W/\\\"${tag}\\\"\";
const size_t mf_srv_page_bytes = ${n_bytes};
const unsigned char mf_srv_page[${n_bytes}] = {
${bytes}};
")
