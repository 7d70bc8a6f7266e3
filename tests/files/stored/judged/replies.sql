BEGIN TRANSACTION;
CREATE TABLE calls (
  step TEXT, model TEXT, prompt_tokens INTEGER, completion_tokens INTEGER, cached_tokens INTEGER, failure TEXT,
  made TEXT
);
INSERT INTO "calls" VALUES('claims','test-2026-01-01',381,37,190,'','2026-11-18T23:00:02.976262+00:00');
INSERT INTO "calls" VALUES('questions','test-2026-01-01',278,36,139,'','2026-11-18T23:00:02.977718+00:00');
INSERT INTO "calls" VALUES('support','test-2026-01-01',453,71,226,'','2026-11-18T23:00:02.990379+00:00');
CREATE TABLE replies (
  key TEXT PRIMARY KEY, step TEXT, sample TEXT, text TEXT, prompt_tokens INTEGER, completion_tokens INTEGER,
  cached_tokens INTEGER, finish TEXT, model TEXT, probabilities TEXT, how TEXT, seconds REAL, attempts INTEGER,
  made TEXT
) WITHOUT ROWID;
INSERT INTO "replies" VALUES('52f315693537fe0ae56cc32875b515c7be5fdaa60d4d5f5ea78c38d709321267','claims','s1','{"sentences": [{"id": "s1", "claims": ["these the data data question The"]}, {"id": "s2", "claims": ["high tower question data question high"]}]}',381,37,190,'stop','test-2026-01-01','{}','json_schema',3.81518368000001828477e-01,1,'2026-11-18T23:00:02.976262+00:00');
INSERT INTO "replies" VALUES('8ed04dd9a84ce3e47547065a7ca34b75a5ecc1ea37347d0aa6772ee82948955a','questions','s1','{"refusal": true, "questions": ["The blocks data questions Write The", "data The data and data answer", "feb The answer questions answer The"]}',278,36,139,'stop','test-2026-01-01','{}','json_schema',2.6964253999949505669e-02,1,'2026-11-18T23:00:02.977718+00:00');
INSERT INTO "replies" VALUES('cfaf7b45e973c26b7a76b6c13d6aa07c2ff49b30483e06bb46ed7f6c5a9c9687','support','s1','{"of_answer": [{"id": "a1", "reason": "dbcdab The Check the data data", "supported_by": ["k1"], "supported_together": [], "contradicted_by": []}, {"id": "a2", "reason": "data The claims dbcdab data between", "supported_by": ["k1"], "supported_together": [], "contradicted_by": []}]}',453,71,226,'stop','test-2026-01-01','{}','json_schema',6.6328620000604132656e-03,1,'2026-11-18T23:00:02.990379+00:00');
CREATE TABLE vectors (key TEXT PRIMARY KEY, vector BLOB) WITHOUT ROWID;
INSERT INTO "vectors" VALUES('19704dc3abde49df5398799c0174a1f49069fd997f26ff4b53dbd640b8332bf0',X'00000000F304353FF304353F00000000');
INSERT INTO "vectors" VALUES('a62c0dd143d7e01c0e57cfd8b2b048dcfe229af3a25a743fcb7380e35d0fe9c7',X'2EF9E43E9BE8213F2EF9E43E2EF9E43E');
INSERT INTO "vectors" VALUES('ced234f3b42ea3dcef16eadeeb6806729850389f84b427b98ea25959aa0f1219',X'000000003ACD133FEB05D13EF304353F');
INSERT INTO "vectors" VALUES('d84f56bfb6f5b24d93a560de0dacd488ed7c9ef09bb29953ef01f2f1d62bf9df',X'EB05D13EEB05D13E3ACD133F3ACD133F');
COMMIT;
