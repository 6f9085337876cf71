/* SPDX-License-Identifier: MIT */
/* JSON schemas, keyword by keyword: what is valid can be written, what is not cannot, and what is
 * not supported is refused by name. */
#include "grammar_data.h"

#include <locale.h>
#include <pthread.h>
#include <stdlib.h>

#define MAX_TEXTS 12

typedef struct schema_case {
    const char *schema;
    const char *valid[MAX_TEXTS], *invalid[MAX_TEXTS];
} schema_case;

static const schema_case cases[] = {
    {"true", {"1", "null", "{\"a\": [1, \"x\"]}", "-0.5e+10"}, {"", "{", "tru", "01", "+1", "1."}},
    {"{}", {"[]", "[1, 2,3]", "\"\\u00e9\\n\"", "{\n  \"a\": 1\n}"}, {"[1,]", "'a'", "\"\t\""}},
    {"{\"type\": \"null\"}", {"null"}, {"0", "\"null\""}},
    {"{\"type\": \"boolean\"}", {"true", "false"}, {"True", "truefalse"}},
    {"{\"type\": \"integer\"}",
     {"0", "-12", "123456789012345678901234567890"},
     {"1.0", "", "-", "00"}},
    {"{\"type\": \"number\"}", {"0", "-1.50", "1e5", "2E-3"}, {".5", "1.", "NaN", "1e"}},
    {"{\"type\": [\"string\", \"null\"]}", {"\"a\"", "null"}, {"1", "a"}},
    {"{\"type\": \"string\"}",
     {"\"\"", "\"a b\"", "\"\xc3\xa9\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\\/\\\\\\\"\"",
      "\"\x7f\""},
     {"\"", "\"a", "\"\n\"", "\"\\x\"", "\"\\ud83d\"", "\"\\ude00\"", "\"a\"b"}},
    {"{\"type\": \"string\", \"minLength\": 2, \"maxLength\": 3}",
     {"\"ab\"", "\"abc\"", "\"\xc3\xa9\xc3\xa9\"", "\"\\n\\u0041\"", "\"\\ud83d\\ude00x\""},
     {"\"a\"", "\"abcd\"", "\"\\ud83d\\ude00\"", "\"\xc3\xa9\""}},
    {"{\"enum\": [\"red\", \"reddish\", \"a\\\"b\", 1, 1.5, null, [1], {\"k\": true}]}",
     {"\"red\"", "\"reddish\"", "\"a\\\"b\"", "1", "1.5", "null", "[1]", "{\"k\": true}"},
     {"\"re\"", "\"redd\"", "2", "[2]", "{}"}},
    {"{\"const\": \"x\"}", {"\"x\""}, {"\"y\"", "x"}},
    {"{\"type\": \"string\", \"enum\": [\"a\", 1]}", {"\"a\""}, {"1"}},
    /* numbers within bounds */
    {"{\"type\": \"integer\", \"minimum\": 0, \"maximum\": 120}",
     {"0", "9", "10", "99", "100", "119", "120"},
     {"-1", "121", "130", "200", "1000", "00", "012"}},
    {"{\"type\": \"integer\", \"minimum\": -15, \"exclusiveMaximum\": 7}",
     {"-15", "-9", "-1", "0", "6"},
     {"-16", "7", "-20", "10", "-100"}},
    {"{\"type\": \"integer\", \"exclusiveMinimum\": 99}",
     {"100", "999", "123456789"},
     {"99", "0", "-100", "10"}},
    {"{\"type\": \"integer\", \"maximum\": -3}",
     {"-3", "-4", "-10", "-99999"},
     {"-2", "0", "-1", "3"}},
    {"{\"type\": \"integer\", \"minimum\": 1.5, \"maximum\": 3.5}", {"2", "3"}, {"1", "4"}},
    {"{\"type\": \"integer\", \"minimum\": -9223372036854775808, \"maximum\": 9223372036854775807}",
     {"9223372036854775807", "-9223372036854775808", "0"},
     {"9223372036854775808", "-9223372036854775809"}},
    {"{\"type\": \"number\", \"minimum\": 0, \"maximum\": 1}",
     {"0", "1", "0.5", "0.0", "1.000", "0.999999"},
     {"1.1", "-0.1", "2", "1.0001", "10"}},
    {"{\"type\": \"number\", \"exclusiveMinimum\": 0, \"exclusiveMaximum\": 1}",
     {"0.5", "0.001", "0.99"},
     {"0", "1", "0.0", "1.0", "0.00"}},
    {"{\"type\": \"number\", \"minimum\": -2.5, \"maximum\": 10.25}",
     {"-2.5", "-2.49", "-1", "0", "10.25", "10.2", "9.99", "10.249", "-2.50"},
     {"-2.51", "-3", "10.26", "10.3", "11", "10.2501"}},
    {"{\"type\": \"number\", \"minimum\": 1.25, \"exclusiveMaximum\": 1.5}",
     {"1.25", "1.3", "1.4999", "1.26"},
     {"1.5", "1.2", "1", "1.249", "2", "1.50"}},
    {"{\"type\": \"number\", \"maximum\": -0.5}",
     {"-0.5", "-1", "-100.25", "-0.51"},
     {"-0.49", "0", "1", "-0.4"}},
    /* patterns */
    {"{\"type\": \"string\", \"pattern\": \"^[a-c]+\\\\d{2}$\"}",
     {"\"a12\"", "\"abc00\""},
     {"\"12\"", "\"a1\"", "\"a123\"", "\"d12\""}},
    {"{\"type\": \"string\", \"pattern\": \"b.d\"}",
     {"\"abcde\"", "\"b\\\"d\"", "\"\\u0041bxd\""},
     {"\"bd\"", "\"b\\nd\"", "\"\""}},
    {"{\"type\": \"string\", \"pattern\": \"^(?:yes|no)?$|^m\"}",
     {"\"yes\"", "\"no\"", "\"\"", "\"maybe\""},
     {"\"yesno\"", "\"am\""}},
    {"{\"type\": \"string\", \"pattern\": \"^[a-z]*$\", \"minLength\": 2, \"maxLength\": 4}",
     {"\"ab\"", "\"abcd\""},
     {"\"a\"", "\"abcde\"", "\"A1\""}},
    {"{\"type\": \"string\", \"pattern\": \"^[^a\\\\s]\\\\u00e9\\\\x41\\\\/$\"}",
     {"\"b\xc3\xa9"
      "A/\""},
     {"\"a\xc3\xa9"
      "A/\"",
      "\" \xc3\xa9"
      "A/\""}},
    {"{\"type\": \"string\", \"pattern\": \"^\\\\ud83d\\\\ude00[\\\\t\\\"\\\\\\\\]$\"}",
     {"\"\xf0\x9f\x98\x80\\t\"", "\"\xf0\x9f\x98\x80\\\"\"", "\"\xf0\x9f\x98\x80\\\\\""},
     {"\"\xf0\x9f\x98\x81\\t\""}},
    /* patterns that look around, and several conditions on one string */
    {"{\"type\": \"string\", \"pattern\": \"^(?=.*[A-Z])(?=.*\\\\d)(?!.*foo).{8,}$\"}",
     {"\"Abcdefg1\"", "\"1abcdefG\"", "\"xxfoXo12\"", "\"A1\\\"\\\"\\\"\\\"\\\"\\\"\""},
     {"\"abcdefg1\"", "\"Abcdefgh\"", "\"Abcdef1\"", "\"xxfooX12\"", "\"A1\\n     \""}},
    {"{\"type\": \"string\", \"pattern\": \"^(?:(?!end).)*$\"}",
     {"\"\"", "\"en\"", "\"een d\"", "\"e\\\"nd\""},
     {"\"end\"", "\"the end\"", "\"a\\nb\""}},
    {"{\"type\": \"string\", \"pattern\": \"a(?=b)\"}", {"\"ab\"", "\"aab\""}, {"\"a\"", "\"ac\""}},
    {"{\"type\": \"string\", \"pattern\": \"(?<!a)b\"}",
     {"\"b\"", "\"abcb\""},
     {"\"ab\"", "\"a\""}},
    {"{\"type\": \"string\", \"pattern\": \"(?<=\\\\$)\\\\d+$\"}",
     {"\"$5\"", "\"x $123\""},
     {"\"5\"", "\"$\"", "\"$5x\""}},
    {"{\"type\": \"string\", \"pattern\": \"\\\\bcat\\\\b\"}",
     {"\"cat\"", "\"a cat.\"", "\"concat cat\""},
     {"\"cats\"", "\"concat\"", "\"_cat\""}},
    {"{\"type\": \"string\", \"pattern\": \"\\\\Bx\\\\B\"}",
     {"\"axb\""},
     {"\"x\"", "\"ax\"", "\"xb\""}},
    {"{\"type\": \"string\", \"pattern\": \"^(?:^|,)a(?:$|,b$)\"}",
     {"\"a\"", "\",a\"", "\"a,b\""},
     {"\"aa\"", "\"a,\"", "\"a,bb\""}},
    {"{\"type\": \"string\", \"pattern\": \"^[a-z]+(-[a-z]+)*$\", \"minLength\": 3, "
     "\"maxLength\": 5}",
     {"\"a-b\"", "\"abc\"", "\"ab-cd\""},
     {"\"ab\"", "\"ab-cde\"", "\"abc-\"", "\"a--b\""}},
    {"{\"type\": \"string\", \"allOf\": [{\"pattern\": \"a\"}, {\"pattern\": \"b\"}], "
     "\"maxLength\": 2}",
     {"\"ab\"", "\"ba\""},
     {"\"a\"", "\"b\"", "\"abc\""}},
    {"{\"type\": \"string\", \"format\": \"date\", \"pattern\": \"^2\", \"maxLength\": 10}",
     {"\"2024-02-29\""},
     {"\"1999-12-31\"", "\"2024-02-30\""}},
    {"{\"type\": \"string\", \"pattern\": \"^(?=[^\\\\u0000-\\\\u007f])..$\"}",
     {"\"\xc3\xa9x\"", "\"\xf0\x9f\x98\x80\xc3\xa9\""},
     {"\"x\xc3\xa9\"", "\"\xc3\xa9\""}},
    /* formats */
    {"{\"type\": \"string\", \"format\": \"date\"}",
     {"\"2024-02-29\"", "\"2000-02-29\"", "\"1999-12-31\""},
     {"\"2023-02-29\"", "\"1900-02-29\"", "\"2023-04-31\"", "\"2023-13-01\"", "\"0000-01-01\"",
      "\"2023-1-1\""}},
    {"{\"type\": \"string\", \"format\": \"date-time\"}",
     {"\"2024-02-29T23:59:59Z\"", "\"1985-04-12T23:20:50.52+01:30\""},
     {"\"2024-02-29 23:59:59Z\"", "\"2024-02-29T24:00:00Z\"", "\"2024-02-29T23:59:59\""}},
    {"{\"type\": \"string\", \"format\": \"time\"}",
     {"\"00:00:00Z\"", "\"12:30:45.5-08:00\""},
     {"\"12:30\"", "\"25:00:00Z\""}},
    {"{\"type\": \"string\", \"format\": \"uuid\"}",
     {"\"123e4567-e89b-12d3-a456-426614174000\""},
     {"\"123e4567e89b12d3a456426614174000\"", "\"g23e4567-e89b-12d3-a456-426614174000\""}},
    {"{\"type\": \"string\", \"format\": \"email\"}",
     {"\"a.b@example.org\"", "\"x+y@h\""},
     {"\"a\"", "\"@b\"", "\"a@\"", "\"a b@c\""}},
    {"{\"type\": \"string\", \"format\": \"ipv4\"}",
     {"\"0.0.0.0\"", "\"255.1.99.249\""},
     {"\"256.1.1.1\"", "\"1.1.1\"", "\"01.1.1.1\""}},
    {"{\"type\": \"string\", \"format\": \"ipv6\"}",
     {"\"::\"", "\"::1\"", "\"2001:db8::8a2e:370:7334\"", "\"1:2:3:4:5:6:7:8\""},
     {"\"1:2:3\"", "\":::\"", "\"1::2::3\"", "\"1:2:3:4:5:6:7:8:9\"", "\"12345::\""}},
    {"{\"type\": \"string\", \"format\": \"uri\"}",
     {"\"https://example.org:80/a/b?q=1#f\"", "\"mailto:a@b.c\"", "\"urn:isbn:1\"",
      "\"http://[::1]/\""},
     {"\"example.org\"", "\"http://a b\"", "\"//x\""}},
    {"{\"type\": \"string\", \"format\": \"hostname\"}",
     {"\"a\"", "\"www.example.org\"", "\"a-b.c1\""},
     {"\"-a\"", "\"a-\"", "\"a..b\"", "\"\""}},
    {"{\"type\": \"string\", \"format\": \"duration\"}",
     {"\"P1Y2M3DT4H5M6S\"", "\"PT30S\"", "\"P4W\"", "\"P1D\""},
     {"\"P\"", "\"PT\"", "\"1D\"", "\"P1S\"", "\"P1YT\""}},
};

static const schema_case composed[] = {
    /* arrays */
    {"{\"type\": \"array\", \"items\": {\"type\": \"integer\"}, \"minItems\": 1, \"maxItems\": 3}",
     {"[1]", "[1,2, 3]", "[ 1,\n 2 ]"},
     {"[]", "[1,2,3,4]", "[\"a\"]", "[1 ,2]"}},
    {"{\"type\": \"array\", \"maxItems\": 0}", {"[]", "[ ]"}, {"[1]"}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"integer\"}, {\"type\": \"string\"}], "
     "\"items\": false}",
     {"[]", "[1]", "[1, \"a\"]"},
     {"[\"a\"]", "[1, \"a\", 2]"}},
    {"{\"type\": \"array\", \"prefixItems\": [{\"type\": \"integer\"}], \"items\": {\"type\": "
     "\"null\"}, \"minItems\": 2, \"maxItems\": 3}",
     {"[1,null]", "[1, null, null]"},
     {"[1]", "[null, null]", "[1,null,null,null]"}},
    {"{\"type\": \"array\", \"items\": {\"type\": \"array\", \"items\": {\"type\": \"array\", "
     "\"items\": {\"type\": \"boolean\"}}}}",
     {"[[[true], []], []]"},
     {"[[true]]", "[[[1]]]"}},
    /* objects */
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"type\": "
     "\"string\"}}, \"required\": [\"a\", \"b\"], \"additionalProperties\": false}",
     {"{\"a\": 1, \"b\": \"x\"}", "{\"a\":1,\"b\":\"x\"}", "{\n    \"a\": 1,\n    \"b\": \"x\"\n}"},
     {"{}", "{\"a\": 1}", "{\"b\": \"x\", \"a\": 1}", "{\"a\": 1, \"b\": \"x\", \"c\": 1}",
      "{\"a\": 1, \"b\": 2}", "{\"a\" : 1, \"b\": \"x\"}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}, \"c\": "
     "{\"const\": 3}}, \"required\": [\"b\"], \"additionalProperties\": false}",
     {"{\"b\": 2}", "{\"a\": 1, \"b\": 2}", "{\"b\": 2, \"c\": 3}",
      "{\"a\": 1, \"b\": 2, \"c\": 3}"},
     {"{}", "{\"a\": 1}", "{\"a\": 1, \"c\": 3}", "{\"c\": 3, \"b\": 2}",
      "{\"a\": 1, \"a\": 1, \"b\": 2}"}},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"const\": 1}, \"b\": {\"const\": 2}, \"c\": "
     "{\"const\": 3}}, \"additionalProperties\": false}",
     {"{}", "{ }", "{\"a\": 1}", "{\"b\": 2}", "{\"c\": 3}", "{\"a\": 1, \"c\": 3}",
      "{\"b\": 2, \"c\": 3}", "{\"a\": 1, \"b\": 2, \"c\": 3}"},
     {"{,}", "{\"a\": 1,}", "{\"b\": 2, \"a\": 1}", "{\"d\": 1}"}},
    {"{\"type\": \"object\", \"properties\": {\"ab\": {\"const\": 1}, \"a\": {\"const\": 2}}, "
     "\"additionalProperties\": {\"type\": \"boolean\"}}",
     {"{\"x\": true}", "{\"ab\": 1, \"abc\": true}", "{\"a\": 2, \"\": false}",
      "{\"b\": true, \"aa\": false}", "{\"ab\": 1, \"a\": 2, \"x\": true}"},
     {"{\"ab\": true}", "{\"x\": 1}", "{\"abc\": 1}", "{\"x\": true, \"a\": 2}"}},
    {"{\"type\": \"object\", \"required\": [\"k\"]}",
     {"{\"k\": 1}", "{\"k\": null, \"z\": 1}"},
     {"{}", "{\"z\": 1}"}},
    {"{\"type\": \"object\", \"additionalProperties\": {\"type\": \"integer\"}, \"minProperties\": "
     "1, \"maxProperties\": 2}",
     {"{\"a\": 1}", "{\"a\": 1, \"b\": 2}"},
     {"{}", "{\"a\": 1, \"b\": 2, \"c\": 3}"}},
    {"{\"type\": \"object\", \"patternProperties\": {\"^k\\\\d$\": {\"type\": \"null\"}}, "
     "\"additionalProperties\": false}",
     {"{}", "{\"k1\": null, \"k2\": null}"},
     {"{\"x\": null}", "{\"k1\": 1}"}},
    {"{\"type\": \"object\", \"propertyNames\": {\"maxLength\": 2}, \"additionalProperties\": "
     "{\"type\": \"integer\"}}",
     {"{\"ab\": 1}"},
     {"{\"abc\": 1}"}},
    /* all that a schema says of names holds, and they are strings whatever it says */
    {"{\"type\": \"object\", \"propertyNames\": {\"const\": \"ab\"}}",
     {"{}", "{\"ab\": 1}"},
     {"{\"a\": 1}", "{\"abc\": 1}"}},
    {"{\"type\": \"object\", \"propertyNames\": {\"anyOf\": [{\"pattern\": \"^a$\"}, {\"$ref\": "
     "\"#/$defs/b\"}]}, \"$defs\": {\"b\": {\"enum\": [\"b\", 7, null]}}}",
     {"{\"a\": 1, \"b\": 1}"},
     {"{\"ab\": 1}", "{7: 1}", "{null: 1}", "{\"7\": 1}"}},
    {"{\"type\": \"object\", \"propertyNames\": {\"allOf\": [{\"minLength\": 1}], \"maxLength\": "
     "2}}",
     {"{\"ab\": 1}", "{\"a\": 1}"},
     {"{\"\": 1}", "{\"abc\": 1}"}},
    {"{\"type\": \"object\", \"propertyNames\": {\"minimum\": 5}}", {"{\"4\": 1}"}, {"{6: 1}"}},
    {"{\"type\": \"object\", \"propertyNames\": true}", {"{\"a\": 1}"}, {"{1: 1}", "{[]: 1}"}},
    {"{\"type\": \"object\", \"propertyNames\": {\"$ref\": \"#/$defs/any\"}, \"$defs\": {\"any\": "
     "{}}}",
     {"{\"a\": 1}"},
     {"{1: 1}"}},
    {"{\"type\": \"object\", \"propertyNames\": {\"type\": [\"integer\", \"string\"]}}",
     {"{\"a\": 1}"},
     {"{1: 1}"}},
    {"{\"type\": \"object\", \"propertyNames\": {\"type\": \"integer\"}}",
     {"{}"},
     {"{1: 1}", "{\"a\": 1}"}},
    {"{\"type\": \"object\", \"propertyNames\": false}", {"{}"}, {"{\"a\": 1}"}},
    /* composition */
    {"{\"anyOf\": [{\"type\": \"integer\"}, {\"type\": \"null\"}]}", {"1", "null"}, {"\"a\""}},
    {"{\"type\": \"object\", \"properties\": {\"t\": {\"type\": \"string\"}}, \"required\": "
     "[\"t\"], \"anyOf\": [{\"properties\": {\"t\": {\"const\": \"a\"}, \"x\": {\"type\": "
     "\"integer\"}}, \"required\": [\"x\"], \"additionalProperties\": false}, {\"properties\": "
     "{\"t\": {\"enum\": [\"b\", \"c\"]}}, \"additionalProperties\": false}]}",
     {"{\"t\": \"a\", \"x\": 1}", "{\"t\": \"b\"}", "{\"t\": \"c\"}"},
     {"{\"t\": \"a\"}", "{\"t\": \"b\", \"x\": 1}", "{\"t\": \"d\"}"}},
    {"{\"oneOf\": [{\"type\": \"object\", \"properties\": {\"k\": {\"const\": \"a\"}}, "
     "\"required\": [\"k\"]}, {\"$ref\": \"#/$defs/b\"}], \"$defs\": {\"b\": {\"type\": "
     "\"object\", \"properties\": {\"k\": {\"const\": \"b\"}}, \"required\": [\"k\"]}}}",
     {"{\"k\": \"a\"}", "{\"k\": \"b\", \"z\": 1}"},
     {"{\"k\": \"c\"}", "{}"}},
    {"{\"allOf\": [{\"type\": \"object\", \"properties\": {\"a\": {\"type\": \"integer\"}}, "
     "\"required\": [\"a\"]}, {\"properties\": {\"a\": {\"minimum\": 5}, \"b\": {\"type\": "
     "\"null\"}}, \"required\": [\"b\"]}]}",
     {"{\"a\": 5, \"b\": null}"},
     {"{\"a\": 4, \"b\": null}", "{\"a\": 5}"}},
    {"{\"allOf\": [{\"type\": [\"integer\", \"string\"]}, {\"type\": [\"string\", \"null\"]}], "
     "\"maxLength\": 1}",
     {"\"a\"", "\"\""},
     {"1", "null", "\"ab\""}},
    /* multiples */
    {"{\"type\": \"integer\", \"multipleOf\": 5}",
     {"0", "5", "-10", "1234567890123456789012345678901234567890"},
     {"1", "12", "-4", "5.0", "05", "1234567890123456789012345678901234567891"}},
    {"{\"type\": \"integer\", \"multipleOf\": 7, \"minimum\": -20, \"exclusiveMaximum\": 700}",
     {"0", "7", "-14", "693", "98"},
     {"700", "-21", "8", "-7.0", "69"}},
    {"{\"type\": \"integer\", \"multipleOf\": 86400, \"exclusiveMinimum\": 0}",
     {"86400", "172800", "864000000"},
     {"0", "-86400", "86401", "43200"}},
    {"{\"type\": \"integer\", \"multipleOf\": 2.5, \"allOf\": [{\"multipleOf\": 3}]}",
     {"0", "15", "-30"},
     {"5", "3", "7"}},
    {"{\"type\": \"integer\", \"multipleOf\": 0.5}", {"0", "3", "-1"}, {"0.5", "1."}},
    {"{\"type\": \"number\", \"multipleOf\": 0.01, \"minimum\": 0}",
     {"0", "0.0", "1.5", "1.50", "19.99", "100"},
     {"0.001", "-1", "1e2", "1.", "19.999", "0.010"}},
    {"{\"type\": \"number\", \"multipleOf\": 0.25, \"exclusiveMinimum\": 1.5, \"maximum\": 12.5}",
     {"1.75", "2", "12.5", "12.50", "10.25", "9.0"},
     {"1.5", "12.75", "1.6", "13", "0.25"}},
    {"{\"type\": \"number\", \"multipleOf\": 30}",
     {"30", "-60.0", "0", "900"},
     {"30.5", "31", "3"}},
    {"{\"multipleOf\": 1e2, \"minimum\": 100.5}", {"200", "1000.0"}, {"100", "150", "\"a\""}},
    /* items that differ */
    {"{\"type\": \"array\", \"items\": {\"enum\": [\"a\", \"b\", 1, 1.0, true]}, \"uniqueItems\": "
     "true, "
     "\"maxItems\": 3}",
     {"[]", "[\"a\"]", "[true, \"b\", 1]", "[\"b\",\"a\"]"},
     {"[\"a\", \"a\"]", "[1, \"a\", 1]", "[\"a\",\"b\",1,true]", "[\"c\"]", "[\"a\",]"}},
    {"{\"items\": {\"$ref\": \"#/$defs/e\"}, \"minItems\": 2, \"uniqueItems\": true, \"$defs\": "
     "{\"e\": "
     "{\"type\": \"string\", \"title\": \"E\", \"enum\": [\"x\", \"y\", 3]}}}",
     {"[\"x\", \"y\"]", "[\n  \"y\",\n  \"x\"\n]"},
     {"[]", "[\"x\"]", "[\"x\", \"x\"]", "[3, \"x\"]"}},
    {"{\"items\": {\"type\": \"boolean\"}, \"uniqueItems\": true}",
     {"[]", "[true]", "[false, true]"},
     {"[true, true]", "[true, false, true]"}},
    {"{\"items\": {\"type\": \"integer\"}, \"uniqueItems\": true, \"maxItems\": 1}",
     {"[]", "[5]"},
     {"[5,5]"}},
    /* references */
    {"{\"$ref\": \"#/$defs/n\", \"$defs\": {\"n\": {\"type\": \"object\", \"properties\": {\"v\": "
     "{\"type\": \"integer\"}, \"next\": {\"anyOf\": [{\"$ref\": \"#/$defs/n\"}, {\"type\": "
     "\"null\"}]}}, \"required\": [\"v\", \"next\"], \"additionalProperties\": false}}}",
     {"{\"v\": 1, \"next\": null}",
      "{\"v\": 1, \"next\": {\"v\": 2, \"next\": {\"v\": 3, \"next\": null}}}"},
     {"{\"v\": 1}", "{\"v\": 1, \"next\": {}}"}},
    {"{\"type\": \"object\", \"properties\": {\"c\": {\"type\": \"array\", \"items\": {\"$ref\": "
     "\"#\"}}}, \"additionalProperties\": false}",
     {"{}", "{\"c\": [{}, {\"c\": [{}]}]}"},
     {"{\"c\": [1]}"}},
    {"{\"definitions\": {\"a/b~\": {\"type\": \"integer\"}}, \"$ref\": \"#/definitions/a~1b~0\"}",
     {"1"},
     {"\"a\""}},
    {"{\"properties\": {\"a\": {\"$ref\": \"#/$defs/x\", \"description\": \"d\", \"maximum\": 3}}, "
     "\"required\": [\"a\"], \"$defs\": {\"x\": {\"type\": \"integer\", \"minimum\": 1}}}",
     {"{\"a\": 1}", "{\"a\": 3}"},
     {"{\"a\": 0}", "{\"a\": 4}"}},
};

static void check_case(const grammar_data *d, const schema_case *c)
{
    mf_error error = {0};
    mf_grammar *g = grammar_of_schema(d, c->schema, &error);
    if (!CHECK_MSG(g != NULL, "%s: %s", c->schema, error.message))
        return;
    for (size_t i = 0; i < MAX_TEXTS && c->valid[i]; i++)
        CHECK_MSG(grammar_accepts(d, g, c->valid[i]), "%s: %s is valid", c->schema, c->valid[i]);
    for (size_t i = 0; i < MAX_TEXTS && c->invalid[i]; i++)
        CHECK_MSG(!grammar_accepts(d, g, c->invalid[i]), "%s: %s is not valid", c->schema,
                  c->invalid[i]);
    mf_grammar_free(&g);
}

/* What is refused, and what the message must say. */
static const struct {
    const char *schema;
    mf_status status;
    const char *says;
} refused[] = {
    {"{\"not\": {}}", MF_ERR_UNSUPPORTED, "\"not\""},
    {"{\"properties\": {\"a\": {\"if\": {}}}}", MF_ERR_UNSUPPORTED,
     "#/properties/a: the keyword \"if\""},
    {"{\"propertyNames\": {\"not\": {}}}", MF_ERR_UNSUPPORTED,
     "#/propertyNames: the keyword \"not\""},
    {"{\"type\": \"array\", \"uniqueItems\": true}", MF_ERR_UNSUPPORTED, "uniqueItems"},
    {"{\"items\": {\"type\": \"integer\", \"maximum\": 5}, \"uniqueItems\": true}",
     MF_ERR_UNSUPPORTED, "uniqueItems"},
    {"{\"items\": {\"enum\": [1,2,3,4,5,6,7,8,9,10,11]}, \"uniqueItems\": true}",
     MF_ERR_UNSUPPORTED, "uniqueItems"},
    {"{\"prefixItems\": [{}], \"items\": {\"enum\": [1,2]}, \"uniqueItems\": true}",
     MF_ERR_UNSUPPORTED, "uniqueItems"},
    {"{\"type\": \"array\", \"uniqueItems\": 1}", MF_ERR_FORMAT, "uniqueItems"},
    {"{\"items\": {\"enum\": [1,2]}, \"minItems\": 3, \"uniqueItems\": true}", MF_ERR_FORMAT,
     "nothing satisfies"},
    {"{\"contains\": {}}", MF_ERR_UNSUPPORTED, "contains"},
    {"{\"type\": \"integer\", \"multipleOf\": 0}", MF_ERR_FORMAT, "multipleOf"},
    {"{\"type\": \"integer\", \"multipleOf\": -2}", MF_ERR_FORMAT, "multipleOf"},
    {"{\"type\": \"integer\", \"multipleOf\": \"2\"}", MF_ERR_FORMAT, "multipleOf"},
    {"{\"type\": \"integer\", \"multipleOf\": 99991}", MF_ERR_UNSUPPORTED, "remainders"},
    {"{\"type\": \"integer\", \"multipleOf\": 12345678901}", MF_ERR_UNSUPPORTED, "multipleOf"},
    {"{\"type\": \"number\", \"multipleOf\": 1e-10}", MF_ERR_UNSUPPORTED, "multipleOf"},
    {"{\"type\": \"number\", \"multipleOf\": 20.01}", MF_ERR_UNSUPPORTED, "remainders"},
    {"{\"type\": \"integer\", \"multipleOf\": 5, \"minimum\": 11, \"maximum\": 14}", MF_ERR_FORMAT,
     "nothing satisfies"},
    {"{\"unevaluatedProperties\": false}", MF_ERR_UNSUPPORTED, "unevaluatedProperties"},
    {"{\"dependentRequired\": {}}", MF_ERR_UNSUPPORTED, "dependentRequired"},
    {"{\"type\": \"string\", \"nullable\": true}", MF_ERR_UNSUPPORTED, "nullable"},
    {"{\"type\": \"string\", \"format\": \"regex\"}", MF_ERR_UNSUPPORTED, "regex"},
    {"{\"type\": \"string\", \"pattern\": \"(?<!a(?=b))b\"}", MF_ERR_UNSUPPORTED,
     "within looking behind"},
    {"{\"type\": \"string\", \"pattern\": \"^(?!.*a.{20}b)[ab]*$\"}", MF_ERR_UNSUPPORTED,
     "more states"},
    {"{\"type\": \"string\", \"pattern\": \"^(?=.{30000})\"}", MF_ERR_UNSUPPORTED, "more states"},
    {"{\"type\": \"string\", \"pattern\": \"^(?=a)b\"}", MF_ERR_FORMAT, "nothing satisfies"},
    {"{\"type\": \"string\", \"pattern\": \"^(?!)\"}", MF_ERR_FORMAT, "nothing satisfies"},
    {"{\"type\": \"string\", \"pattern\": \"(a)\\\\1\"}", MF_ERR_UNSUPPORTED, "references"},
    {"{\"type\": \"string\", \"pattern\": \"\\\\p{L}\"}", MF_ERR_UNSUPPORTED, "properties of"},
    {"{\"type\": \"string\", \"pattern\": \"a^b\"}", MF_ERR_FORMAT, "nothing satisfies"},
    {"{\"type\": \"string\", \"pattern\": \"(a\"}", MF_ERR_FORMAT, "')'"},
    {"{\"type\": \"string\", \"pattern\": \"a)\"}", MF_ERR_FORMAT, "')'"},
    {"{\"type\": \"string\", \"pattern\": \"[z-a]\"}", MF_ERR_FORMAT, "backwards"},
    {"{\"type\": \"string\", \"pattern\": \"\\\\\"}", MF_ERR_FORMAT, "escape"},
    {"{\"type\": \"string\", \"pattern\": \"*\"}", MF_ERR_FORMAT, "nothing to repeat"},
    {"{\"type\": \"string\", \"pattern\": \"a|{2}\"}", MF_ERR_FORMAT, "nothing to repeat"},
    {"{\"type\": \"string\", \"pattern\": \"(?<!a){2}\"}", MF_ERR_FORMAT, "nothing to repeat"},
    {"{\"type\": \"string\", \"pattern\": \"(?=a){1,}b\"}", MF_ERR_FORMAT, "nothing to repeat"},
    {"{\"type\": \"string\", \"pattern\": \"a{2}{3}\"}", MF_ERR_FORMAT, "nothing to repeat"},
    {"{\"type\": \"string\", \"pattern\": \"a*{2}\"}", MF_ERR_FORMAT, "nothing to repeat"},
    {"{\"type\": \"string\", \"pattern\": \"^{1}\"}", MF_ERR_FORMAT, "nothing to repeat"},
    {"{\"type\": \"string\", \"pattern\": \"^(ab)*$\", \"maxLength\": 9000}", MF_ERR_UNSUPPORTED,
     "more states"},
    {"{\"type\": \"string\", \"format\": \"date\", \"maxLength\": 3}", MF_ERR_FORMAT,
     "nothing satisfies"},
    {"{\"enum\": [\"a\", \"bc\"], \"maxLength\": 1}", MF_ERR_UNSUPPORTED, "enum together"},
    {"{\"oneOf\": [{\"type\": \"integer\"}, {\"type\": \"number\"}]}", MF_ERR_UNSUPPORTED, "oneOf"},
    {"{\"type\": \"object\", \"minProperties\": 2}", MF_ERR_UNSUPPORTED, "minProperties"},
    {"{\"patternProperties\": {\"a\": {}}}", MF_ERR_UNSUPPORTED, "patternProperties"},
    {"{\"items\": [{}]}", MF_ERR_UNSUPPORTED, "prefixItems"},
    {"{\"$ref\": \"#/$defs/x\"}", MF_ERR_FORMAT, "$ref"},
    {"{\"$ref\": \"http://x/y\"}", MF_ERR_FORMAT, "$ref"},
    {"{\"type\": \"thing\"}", MF_ERR_FORMAT, "type"},
    {"{\"type\": 3}", MF_ERR_FORMAT, "type"},
    {"{\"anyOf\": []}", MF_ERR_FORMAT, "anyOf"},
    {"{\"minLength\": -1}", MF_ERR_FORMAT, "minLength"},
    {"{\"minLength\": 1.5}", MF_ERR_FORMAT, "minLength"},
    {"{\"minimum\": \"1\"}", MF_ERR_FORMAT, "minimum"},
    {"{\"properties\": []}", MF_ERR_FORMAT, "properties"},
    {"{\"required\": [1]}", MF_ERR_FORMAT, "required"},
    {"{\"properties\": {\"a\": 1}}", MF_ERR_FORMAT, "expected a schema"},
    {"[]", MF_ERR_FORMAT, "expected a schema"},
    {"{\"a\": }", MF_ERR_FORMAT, "JSON"},
    {"{\"type\": \"string\", \"type\": \"null\"}", MF_ERR_FORMAT, "type"},
    {"false", MF_ERR_FORMAT, "nothing satisfies"},
    {"{\"minLength\": 3, \"maxLength\": 2}", MF_ERR_FORMAT, "nothing satisfies"},
    {"{\"type\": \"integer\", \"minimum\": 2, \"maximum\": 1}", MF_ERR_FORMAT, "nothing satisfies"},
    {"{\"type\": \"integer\", \"exclusiveMinimum\": 1, \"exclusiveMaximum\": 2}", MF_ERR_FORMAT,
     "nothing satisfies"},
    {"{\"allOf\": [{\"type\": \"integer\"}, {\"type\": \"string\"}]}", MF_ERR_FORMAT,
     "nothing satisfies"},
    {"{\"type\": \"object\", \"properties\": {\"a\": {\"$ref\": \"#\"}}, \"required\": [\"a\"]}",
     MF_ERR_FORMAT, "nothing satisfies"},
};

static void check_refusals(const grammar_data *d)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        mf_error error = {0};
        mf_grammar *g = grammar_of_schema(d, refused[i].schema, &error);
        CHECK_MSG(g == NULL, "%s is not refused", refused[i].schema);
        CHECK_MSG(error.code == refused[i].status, "%s: %s: %s", refused[i].schema,
                  mf_status_name(error.code), error.message);
        CHECK_CONTAINS(error.message, refused[i].says);
        mf_grammar_free(&g);
    }
}

/* A remark and keywords of other makers say nothing. */
static void check_remarks(const grammar_data *d)
{
    const schema_case c = {
        "{\"$schema\": \"s\", \"$id\": \"i\", \"title\": \"t\", \"description\": \"d\", "
        "\"default\": 1, "
        "\"examples\": [1], \"$comment\": \"c\", \"deprecated\": true, \"x-order\": 3, "
        "\"readOnly\": true, \"type\": \"integer\"}",
        {"1"},
        {"\"a\""}};
    check_case(d, &c);
}

/* A locale in which a half is 0,5; false: the system has none. */
static bool set_comma_locale(void)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "es_ES.UTF-8",
                                        "pt_BR.UTF-8", "ru_RU.UTF-8", "de_DE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (setlocale(LC_NUMERIC, names[i]) != NULL &&
            strcmp(localeconv()->decimal_point, ",") == 0)
            return true;
    return false;
}

/* One that is made of the system's description, to a folder of its own. */
static bool make_comma_locale(const char *folder)
{
    char command[512];
    snprintf(command, sizeof command,
             "localedef --no-archive -i de_DE -f ISO-8859-1 %s/de_DE 2>/dev/null", folder);
    if (system(command) != 0) /* NOLINT(cert-env33-c): fixed but for the folder */
        return false;
    setenv("LOCPATH", folder, 1);
    return set_comma_locale();
}

static void check_numbers(const grammar_data *d)
{
    static const schema_case halves = {
        "{\"oneOf\": [{\"const\": 0.5}, {\"const\": 0.25}]}", {"0.5", "0.25"}, {"0", "0.75"}};
    mf_error error = {0};
    check_case(d, &halves);
    mf_grammar *g = grammar_of_schema(d, "{\"type\": \"string\", \"minLength\": 2.5}", &error);
    CHECK(g == NULL);
    CHECK_CONTAINS(error.message, "minLength: expected a whole number");
    mf_grammar_free(&g);
    /* Equal by value, however they are written. */
    static const char *const pairs[][2] = {{"1.0", "1"},      {"1.50", "1.5"}, {"0", "-0"},
                                           {"0.0", "0"},      {"10", "1e1"},   {"0.10", "0.1"},
                                           {"-1.5", "-15e-1"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (size_t k = 0; k < 2; k++) {
            char text[128];
            snprintf(text, sizeof text, "{\"allOf\": [{\"enum\": [%s]}, {\"enum\": [7, %s]}]}",
                     pairs[i][k], pairs[i][1 - k]);
            g = grammar_of_schema(d, text, &error);
            CHECK_MSG(g != NULL, "%s: %s", text, error.message);
            mf_grammar_free(&g);
        }
    g = grammar_of_schema(d, "{\"allOf\": [{\"enum\": [0.5]}, {\"enum\": [5, 0.05]}]}", &error);
    CHECK(g == NULL);
    g = grammar_of_schema(d, "{\"type\": \"integer\", \"const\": 1.5}", &error);
    CHECK(g == NULL);
    CHECK_CONTAINS(error.message, "nothing satisfies");
    mf_grammar_free(&g);
}

/* Numbers of a schema are JSON's, whatever the program's locale has for a point. */
static void check_locale(const grammar_data *d)
{
    char folder[] = "/tmp/mf_locale_XXXXXX", command[64];
    check_numbers(d);
    const bool is_made = !set_comma_locale() && mkdtemp(folder) != NULL;
    if (!is_made || make_comma_locale(folder))
        check_numbers(d);
    else
        printf("no locale here writes numbers with a comma\n");
    setlocale(LC_NUMERIC, "C");
    snprintf(command, sizeof command, "rm -r %s", folder);
    if (is_made && system(command) != 0) /* NOLINT(cert-env33-c): the folder is ours */
        printf("%s stays\n", folder);
}

/* "[first, first + 1, ...]", behind what is in text. */
static void add_numbers(char *text, size_t capacity, unsigned first, unsigned n)
{
    size_t at = strlen(text);
    for (unsigned i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, capacity - at, "%c%u", i == 0 ? '[' : ',', first + i);
    snprintf(text + at, capacity - at, "]");
}

/* {"KEYWORD": of two lists of n numbers that have none in common}. */
static void write_two_lists(char *text, size_t capacity, const char *keyword, unsigned first,
                            unsigned n)
{
    snprintf(text, capacity, "{\"%s\": [{\"enum\": ", keyword);
    add_numbers(text, capacity, first, n);
    snprintf(text + strlen(text), capacity - strlen(text), "}, {\"enum\": ");
    add_numbers(text, capacity, first + n, n);
    snprintf(text + strlen(text), capacity - strlen(text), "}]}");
}

/* Long lists of values take no more time than their length; what would take its square is refused.
 */
static void check_long_lists(const grammar_data *d)
{
    enum { N = 30000, CAPACITY = 1 << 20 };
    char *text = malloc(CAPACITY);
    mf_error error = {0};
    CHECK(text != NULL);
    if (text == NULL)
        return;
    snprintf(text, CAPACITY, "{\"enum\": ");
    add_numbers(text, CAPACITY, 100000, N);
    snprintf(text + strlen(text), CAPACITY - strlen(text), "}");
    mf_grammar *g = grammar_of_schema(d, text, &error);
    CHECK_MSG(g != NULL, "%s", error.message);
    mf_grammar_free(&g);
    static const char *const two[] = {"oneOf", "allOf"};
    for (size_t i = 0; i < 2; i++) {
        write_two_lists(text, CAPACITY, two[i], 100000, N);
        g = grammar_of_schema(d, text, &error);
        CHECK(g == NULL && error.code == MF_ERR_UNSUPPORTED);
        CHECK_CONTAINS(error.message, "lists of values and names are too long to be compared");
        mf_grammar_free(&g);
    }
    free(text);
}

/* What reading them takes is bounded for all schemas of a grammar together: each of these alone is
 * read, and all of them are not. */
static void check_many_schemas(const grammar_data *d)
{
    enum { N = 8, N_VALUES = 2000, CAPACITY = 1 << 16 };
    char *text = malloc(CAPACITY);
    mf_grammar_schema schemas[N];
    mf_grammar_params params;
    mf_error error = {0};
    mf_grammar *g = NULL;
    CHECK(text != NULL);
    if (text == NULL)
        return;
    write_two_lists(text, CAPACITY, "oneOf", 10000, N_VALUES);
    for (size_t i = 0; i < N; i++)
        schemas[i] = (mf_grammar_schema){"s", text, strlen(text)};
    mf_grammar_params_default(&params);
    params.gbnf = "root ::= s";
    params.n_gbnf_bytes = strlen(params.gbnf);
    params.schemas = schemas;
    params.n_schemas = 1;
    CHECK_MSG(mf_grammar_compile(d->vocabulary, &params, &g, &error) == MF_OK, "%s", error.message);
    mf_grammar_free(&g);
    params.n_schemas = N;
    CHECK(mf_grammar_compile(d->vocabulary, &params, &g, &error) == MF_ERR_UNSUPPORTED);
    CHECK_CONTAINS(error.message, "lists of values and names are too long to be compared");
    CHECK(g == NULL);
    free(text);
}

typedef struct deep_schema {
    const grammar_data *data;
    char text[1 << 14];
    mf_status status;
} deep_schema;

static void *read_deep(void *user)
{
    deep_schema *deep = user;
    mf_error error = {0};
    mf_grammar *grammar = grammar_of_schema(deep->data, deep->text, &error);
    deep->status = grammar != NULL ? MF_OK : error.code;
    mf_grammar_free(&grammar);
    return NULL;
}

/* Schemas come from anyone: what the header says of the stack holds for the deepest ones, those
 * that are taken and those that are refused. */
static void check_stack(const grammar_data *d)
{
    static const char *const levels[][2] = {{"{\"type\":\"object\",\"properties\":{\"a\":", "}}"},
                                            {"{\"items\":", "}"},
                                            {"{\"prefixItems\":[", "]}"},
                                            {"{\"anyOf\":[", "]}"},
                                            {"{\"additionalProperties\":", "}"}};
    static deep_schema deep;
    pthread_attr_t attributes;
    deep.data = d;
    REQUIRE(pthread_attr_init(&attributes) == 0);
    REQUIRE(pthread_attr_setstacksize(&attributes, 1 << 20) == 0);
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        for (int n = 150; n <= 250; n += 100) { /* up to 160 are taken */
            pthread_t thread;
            deep.text[0] = '\0';
            char *end = deep.text;
            for (int k = 0; k < n; k++)
                end = stpcpy(end, levels[i][0]);
            end = stpcpy(end, "{}");
            for (int k = 0; k < n; k++)
                end = stpcpy(end, levels[i][1]);
            REQUIRE(pthread_create(&thread, &attributes, read_deep, &deep) == 0);
            REQUIRE(pthread_join(thread, NULL) == 0);
            CHECK_MSG(deep.status == (n < 160 ? MF_OK : MF_ERR_UNSUPPORTED), "%s %d deep: %d",
                      levels[i][0], n, (int)deep.status);
        }
    }
    REQUIRE(pthread_attr_destroy(&attributes) == 0);
}

int main(void)
{
    grammar_data d;
    grammar_data_open(&d);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_case(&d, &cases[i]);
    for (size_t i = 0; i < sizeof composed / sizeof *composed; i++)
        check_case(&d, &composed[i]);
    check_refusals(&d);
    check_remarks(&d);
    check_long_lists(&d);
    check_many_schemas(&d);
    check_locale(&d);
    if (!TEST_IS_SANITIZED) /* frames are larger there */
        check_stack(&d);
    grammar_data_close(&d);
    return test_result();
}
